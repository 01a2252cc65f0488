"""The plot: Headrace as a share of Apache Kafka, one bar per row, drawn without any library."""

from collections.abc import Iterator, Sequence
from html import escape

from bench.results import Goal

ROW_PX = 26
LABEL_PX = 400
SCALE_PX = 420
SHARE_MAX = 1.25
TOP_PX = 54
MET, MISSED, TEXT, GRID = "#2b7a78", "#c8553d", "#222222", "#cccccc"


def svg(goals: Sequence[Goal]) -> str:
    """Of the goals, those that are shares of Apache Kafka's figure."""
    rows = [goal for goal in goals if "Kafka" in goal.unit]
    width, height = LABEL_PX + SCALE_PX + 90, TOP_PX + ROW_PX * len(rows) + 20
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">'
    body = [*_scale(height), *(part for number, goal in enumerate(rows) for part in _bar(number, goal))]
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, background, *body, "</svg>", ""])


def _scale(height: int) -> Iterator[str]:
    yield _text(8, 18, "Headrace as a share of Apache Kafka (less is better; the mark is the target)", size=14)
    for percent in (0, 25, 50, 75, 100, 125):
        x = LABEL_PX + SCALE_PX * percent / 100 / SHARE_MAX
        colour = TEXT if percent == 100 else GRID
        yield f'<line x1="{x:.1f}" y1="{TOP_PX - 8}" x2="{x:.1f}" y2="{height - 14}" stroke="{colour}"/>'
        yield _text(x, TOP_PX - 14, f"{percent} %", anchor="middle")


def _bar(number: int, goal: Goal) -> Iterator[str]:
    y = TOP_PX + ROW_PX * number
    length = SCALE_PX * min(goal.value, SHARE_MAX) / SHARE_MAX
    target = LABEL_PX + SCALE_PX * min(goal.limit, SHARE_MAX) / SHARE_MAX
    colour = MET if goal.is_met else MISSED
    yield _text(LABEL_PX - 8, y + 15, goal.name, anchor="end")
    yield f'<rect x="{LABEL_PX}" y="{y + 3}" width="{max(length, 1):.1f}" height="{ROW_PX - 9}" fill="{colour}"/>'
    yield f'<line x1="{target:.1f}" y1="{y}" x2="{target:.1f}" y2="{y + ROW_PX - 3}" stroke="{TEXT}" stroke-width="2"/>'
    yield _text(LABEL_PX + length + 6, y + 15, f"{goal.value:.1%}")


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y}" font-size="{size}" fill="{TEXT}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(words)}</text>"
