"""The report says what the proofs found, and the demo is where people look first."""

import json
import re
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from demo import figures, report
from demo.evidence import Evidence, QueryBatch
from demo.proofs.all import prove
from demo.proofs.promise import FINDINGS_MAX
from tests.demo.sound import sound

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("KIP-207", "KIP-227", "KIP-461", "KIP-1023", "KIP-1303", "headrace.own", "Exactly once", "acks=all")
FIRST_SCREEN = 40


class Addresses(HTMLParser):
    """What a page would load from elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href") or tag in ("script", "link")]


def written(directory: Path, seen: Evidence) -> tuple[str, list[dict[str, object]]]:
    report.write(directory, seen, prove(seen))
    return (directory / "report.html").read_text(), json.loads((directory / "report.json").read_text())


def test_every_document_has_a_promise() -> None:
    told = [one.document for one in prove(sound())]
    for document in DOCUMENTS:
        assert any(one.startswith(document) for one in told), document


def test_the_report_needs_nothing_else_and_tells_every_promise(tmp_path: Path) -> None:
    page, told = written(tmp_path, sound())
    assert Addresses(page).found == []
    assert "15 of 15 promises kept" in page and len(told) == 15
    for one in told:
        assert one["ok"] is True and one["figures"] and escape(str(one["promise"])) in page


def test_a_broken_promise_is_told_in_both_with_its_findings(tmp_path: Path) -> None:
    seen = sound()
    seen.lake *= 2
    page, told = written(tmp_path, seen)
    (broken,) = [one for one in told if not one["ok"]]
    findings = broken["findings"]
    assert isinstance(findings, list) and len(findings) == FINDINGS_MAX
    assert broken["findings_total"] == len(seen.lake) / 2
    assert "14 of 15 promises kept" in page and "BROKEN" in page and findings[0] in page


def test_what_others_wrote_is_text_and_never_a_tag(tmp_path: Path) -> None:
    seen = sound()
    seen.takeover.raw_refusal = "<script>alert(1)</script>"
    page, _ = written(tmp_path, seen)
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_plots_are_whole_also_when_little_was_seen() -> None:
    for seen in (sound(), Evidence()):
        for plot in (figures.throughput, figures.lag, figures.offsets, figures.leaders, figures.overview):
            assert ElementTree.fromstring(plot(seen)).tag.endswith("svg")


def test_who_led_is_a_bar_until_the_next_one_leads() -> None:
    bars = [bar for bar in figures.leader_bars(sound()) if bar.lane == "orders-0"]
    assert [(bar.from_s, bar.to_s) for bar in bars] == [(0.5, 5.4), (5.4, figures.end_s(sound()))]


def test_the_first_screen_of_the_readme_shows_the_demo() -> None:
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:FIRST_SCREEN])
    assert "make demo" in screen and "(docs/demo.svg)" in screen
    assert ElementTree.parse(ROOT / "docs" / "demo.svg").getroot().tag.endswith("svg")


def test_make_demo_is_a_target_that_make_tells_of() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert re.search(r"^make demo ", shown, re.MULTILINE)
    planned = subprocess.run(["make", "-n", "demo"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "python -m demo" in planned


def test_a_batch_that_was_done_again_is_not_counted_twice() -> None:
    seen = sound()
    seen.batches = [
        QueryBatch(2.0, "lake", 0, 100),
        QueryBatch(3.0, "lake", 0, 100),
        QueryBatch(4.0, "lake", 2, 150),  # nobody was told of batch 1
    ]
    points = {point.at_s: point.value for point in figures.behind(seen, "lake")}
    acked = {at_s: sum(one.at_s <= at_s for one in seen.acked) for at_s in points}
    assert [acked[at_s] - points[at_s] for at_s in (1.5, 2.0, 3.0, 4.0)] == [0, 100, 100, 150]
