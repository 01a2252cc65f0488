"""The report: one HTML page that needs nothing else, and the same as JSON."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from demo import figures
from demo.evidence import Evidence
from demo.proofs.promise import FINDINGS_MAX, Promise

STYLE = """
html { color-scheme: light; background: white }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color: #222 }
h1 { margin-bottom: 0 } table { border-collapse: collapse; width: 100%; margin: 1em 0 }
th, td { text-align: left; vertical-align: top; padding: .45em .6em; border-bottom: 1px solid #ddd }
.figures, .finding { overflow-wrap: anywhere }
.kept { color: #2b7a78; font-weight: bold } .broken { color: #c8553d; font-weight: bold }
.figures { color: #555; font-size: 13px } .finding { color: #c8553d; font-size: 13px }
.plot { overflow-x: auto; margin: .6em 0 } svg { display: block; width: 100%; min-width: 40em; height: auto }
@media (max-width: 40em) { th, td { padding: .3em } body { font-size: 13px } .figures, .finding { font-size: 12px } }
"""


def write(directory: Path, seen: Evidence, promises: Sequence[Promise]) -> None:
    told = json.dumps([one.as_json() for one in promises], indent=2, ensure_ascii=False)
    (directory / "report.json").write_text(told + "\n")
    (directory / "report.html").write_text(page(seen, promises))


def plot(seen: Evidence) -> str:
    """For the first screen of the README."""
    return figures.overview(seen)


def page(seen: Evidence, promises: Sequence[Promise]) -> str:
    kept = sum(one.ok for one in promises)
    verdict = (
        f'<span class="{"kept" if kept == len(promises) else "broken"}">{kept} of {len(promises)} promises kept</span>'
    )
    plots = [figures.throughput(seen), figures.leaders(seen), figures.offsets(seen), figures.lag(seen)]
    plots.append(figures.written(seen))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Headrace demo</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head><body><h1>Headrace demo</h1>",
            f"<p>{verdict}; {len(seen.acked):,} orders, three brokers, a tier and Spark.</p>",
            _table(["", "Promise", "Of", "Figures"], map(_promise_row, promises)),
            *(f'<div class="plot">{one}</div>' for one in plots),
            "<h2>What happened</h2>",
            _table(["", "At", "What"], _happenings(seen)),
            "<h2>Who led when, and why</h2>",
            _table(["At", "Partition", "Leader", "Epoch", "Because"], _led(seen)),
            "</body></html>",
            "",
        ]
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}\n</table>"


def _promise_row(one: Promise) -> list[str]:
    mark = '<span class="kept">kept</span>' if one.ok else '<span class="broken">BROKEN</span>'
    found = "".join(f'<div class="finding">{escape(finding)}</div>' for finding in one.findings[:FINDINGS_MAX])
    told = "<br>".join(f"{escape(name)}: {escape(_shown(value))}" for name, value in one.figures.items())
    return [mark, escape(one.claim) + found, escape(one.document), f'<div class="figures">{told}</div>']


def _shown(value: float | int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _happenings(seen: Evidence) -> list[list[str]]:
    marks = figures.marks_of(seen)
    return [
        [mark.label, f"{one.at_s:.1f} s", escape(one.what)] for mark, one in zip(marks, seen.happenings, strict=True)
    ]


def _led(seen: Evidence) -> list[list[str]]:
    return [
        [f"{one.at_s:.1f} s", f"orders-{one.partition}", "nobody" if one.leader < 0 else f"node {one.leader}",
         str(one.epoch), escape(one.because)]
        for one in seen.led
    ]  # fmt: skip
