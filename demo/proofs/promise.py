"""A promise, whether it was kept, and the figures that show it."""

from dataclasses import dataclass, field

FINDINGS_MAX = 10


@dataclass(frozen=True)
class Promise:
    document: str
    """Which paper makes it: a KIP, or a page of the documentation."""
    claim: str
    figures: dict[str, float | int | str]
    findings: list[str] = field(default_factory=list)
    """Each breach that was found, one sentence each."""

    @property
    def ok(self) -> bool:
        return not self.findings

    def as_json(self) -> dict[str, object]:
        findings = self.findings[:FINDINGS_MAX]
        return {
            "promise": self.claim,
            "document": self.document,
            "ok": self.ok,
            "figures": self.figures,
            "findings": findings,
            "findings_total": len(self.findings),
        }


def unless(holds: object, finding: str) -> list[str]:
    return [] if holds else [finding]
