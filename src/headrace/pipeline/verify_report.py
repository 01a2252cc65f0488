"""What was found, for people and for programs."""

from dataclasses import dataclass, field
from typing import Any

from headrace.pipeline.replica_reading import TIER


@dataclass
class Row:
    """One replica of one partition, or its segments in the tier."""

    partition: int
    node: int
    role: str
    """leader, in sync, behind or tier."""
    first: int
    last: int
    batches: int = 0
    records: int = 0
    bytes: int = 0
    findings: int = 0

    @property
    def name(self) -> str:
        return name_of(self.node)


@dataclass
class Found:
    partition: int
    node: int
    kind: str
    offset: int
    text: str

    def sentence(self, topic: str) -> str:
        return f"{topic}-{self.partition}, {name_of(self.node)}, offset {self.offset}: {self.text}"


@dataclass
class Report:
    topic: str
    is_compacted: bool
    rows: list[Row] = field(default_factory=list)
    findings: list[Found] = field(default_factory=list)
    unread: list[Found] = field(default_factory=list)
    """What could not be looked at, and why."""
    high_watermarks: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.findings and not self.unread

    @property
    def bytes(self) -> int:
        return sum(row.bytes for row in self.rows)

    @property
    def batches(self) -> int:
        return sum(row.batches for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "topic": self.topic,
            "ok": self.ok,
            "compacted": self.is_compacted,
            "seconds": round(self.seconds, 3),
            "batches": self.batches,
            "records": sum(row.records for row in self.rows),
            "bytes": self.bytes,
            "partitions": [
                {
                    "partition": partition,
                    "high_watermark": self.high_watermarks[partition],
                    "replicas": [
                        {
                            "replica": "tier" if row.node == TIER else row.node,
                            "role": row.role,
                            "first": row.first,
                            "last": row.last,
                            "batches": row.batches,
                            "records": row.records,
                            "bytes": row.bytes,
                            "findings": row.findings,
                        }
                        for row in self.rows
                        if row.partition == partition
                    ],
                }
                for partition in sorted(self.high_watermarks)
            ],
            "findings": [_json(one) for one in self.findings],
            "unread": [_json(one) for one in self.unread],
        }

    def summary(self) -> str:
        parts = [f"{len(self.findings)} findings"] if self.findings else []
        parts += [f"{len(self.unread)} not read"] if self.unread else []
        return ", ".join(parts) or ("no finding" if self.batches else "there was nothing to check")


def _json(one: Found) -> dict[str, Any]:
    replica = "tier" if one.node == TIER else one.node
    told = {"partition": one.partition, "replica": replica, "kind": one.kind, "offset": one.offset, "text": one.text}
    return {name: value for name, value in told.items() if name != "offset" or one.offset >= 0}


def name_of(node: int) -> str:
    return "tier" if node == TIER else f"node {node}"
