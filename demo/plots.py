"""SVG without any library: axes, lines, dots and lanes over the time of the demo."""

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil
from typing import NamedTuple

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 880, 78, 16, 34, 30
TEXT, FAINT, GRID, MARK = "#222222", "#777777", "#dddddd", "#c8553d"
COLOURS = ("#2b7a78", "#e1a730", "#5b5f97", "#b56576")
LABELS = 5


class Point(NamedTuple):
    at_s: float
    value: float


class Series(NamedTuple):
    name: str
    points: Sequence[Point]
    colour: str
    dots: bool = False


class Mark(NamedTuple):
    """Something that happened: a number at a time, explained below the plots."""

    at_s: float
    label: str


class Bar(NamedTuple):
    lane: str
    from_s: float
    to_s: float
    colour: str
    label: str


class Frame(NamedTuple):
    """Where times and values lie on the page."""

    from_s: float
    to_s: float
    low: float
    high: float
    top: float
    height: float

    def x(self, at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at_s - self.from_s) / max(self.to_s - self.from_s, 1e-9)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - (value - self.low) / max(self.high - self.low, 1e-9))


def document(height: float, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>', *parts, "</svg>", ""])


def lines(title: str, series: Sequence[Series], marks: Sequence[Mark], frame: Frame) -> list[str]:
    parts = [text(LEFT, frame.top - 14, title, size=14), *_values(frame), *_times(frame), *_marks(marks, frame)]
    for number, one in enumerate(series):
        parts.append(text(WIDTH - RIGHT - 130 * (len(series) - number) + 130, frame.top - 14, one.name,
                          colour=one.colour, anchor="end"))  # fmt: skip
        parts += _dots(one, frame) if one.dots else [_line(one, frame)]
    return parts


def lanes(title: str, bars: Sequence[Bar], marks: Sequence[Mark], frame: Frame) -> list[str]:
    names = sorted({bar.lane for bar in bars})
    step = frame.height / max(len(names), 1)
    parts = [text(LEFT, frame.top - 14, title, size=14), *_times(frame)]
    for bar in bars:
        y = frame.top + step * names.index(bar.lane)
        begin, end = frame.x(max(bar.from_s, frame.from_s)), frame.x(min(bar.to_s, frame.to_s))
        parts.append(f'<rect x="{begin:.1f}" y="{y + 3:.1f}" width="{max(end - begin, 1):.1f}" '
                     f'height="{step - 6:.1f}" fill="{bar.colour}"/>')  # fmt: skip
        label = next((one for one in (bar.label, bar.label.partition(",")[0]) if 7 * len(one) < end - begin), "")
        parts.append(text((begin + end) / 2, y + step / 2 + 4, label, anchor="middle", colour="white"))
    parts += [text(LEFT - 6, frame.top + step * at + step / 2 + 4, name, anchor="end") for at, name in enumerate(names)]
    return parts + _marks(marks, frame)


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, colour: str = TEXT) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(words)}</text>"


def frame_for(
    series: Sequence[Series], from_s: float, to_s: float, top: float, height: float, low: float | None = 0.0
) -> Frame:
    values = [point.value for one in series for point in one.points if from_s <= point.at_s <= to_s] or [0.0, 1.0]
    high = max(values) * 1.05 if low == 0.0 else max(values)
    return Frame(from_s, to_s, min(values) if low is None else low, max(high, 1.0), top, height)


def ticks(low: float, high: float) -> list[float]:
    """Round values between the two, not many."""
    sizes = (factor * 10.0**power for power in range(12) for factor in (1, 2, 5))
    step = next((size for size in sizes if (high - low) / size <= LABELS), high - low)
    first = -(-low // step)
    return [(first + at) * step for at in range(int(high // step - first) + 1)]


def _values(frame: Frame) -> Iterator[str]:
    for value in ticks(frame.low, frame.high):
        y = frame.y(value)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GRID}"/>'
        yield text(LEFT - 6, y + 4, f"{value:,.0f}", anchor="end", colour=FAINT)


def _times(frame: Frame) -> Iterator[str]:
    span = frame.to_s - frame.from_s
    step = next(step for step in (1, 2, 5, 10, 20, 30, 60, 120, 1 << 30) if span / step <= 12)
    at_s = ceil(frame.from_s / step) * step
    while at_s <= frame.to_s:
        yield text(frame.x(at_s), frame.top + frame.height + 16, f"{at_s} s", anchor="middle", colour=FAINT)
        at_s += step


def _marks(marks: Sequence[Mark], frame: Frame) -> list[str]:
    shown = [mark for mark in marks if frame.from_s <= mark.at_s <= frame.to_s]
    parts = []
    for number, mark in enumerate(shown):
        x = frame.x(mark.at_s)
        parts.append(f'<line x1="{x:.1f}" y1="{frame.top}" x2="{x:.1f}" y2="{frame.top + frame.height}" '
                     f'stroke="{MARK}" stroke-dasharray="3,3"/>')  # fmt: skip
        parts.append(text(x + 2, frame.top + 10 + 12 * (number % 3), mark.label, size=10, colour=MARK))
    return parts


def _line(one: Series, frame: Frame) -> str:
    places = " ".join(
        f"{frame.x(point.at_s):.1f},{frame.y(point.value):.1f}"
        for point in one.points
        if frame.from_s <= point.at_s <= frame.to_s
    )
    return f'<polyline points="{places}" fill="none" stroke="{one.colour}" stroke-width="1.8"/>'


def _dots(one: Series, frame: Frame) -> list[str]:
    return [
        f'<circle cx="{frame.x(point.at_s):.1f}" cy="{frame.y(point.value):.1f}" r="1.8" fill="{one.colour}"/>'
        for point in one.points
        if frame.from_s <= point.at_s <= frame.to_s
    ]
