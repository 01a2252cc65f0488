"""KIP-207: latest offsets that clients were told never go back."""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from demo.evidence import Acked, Evidence, ToldEnd
from demo.plan import NODE_IDS, PARTITIONS
from demo.proofs.promise import Promise, unless

NOT_AVAILABLE = 78


def never_back(seen: Evidence) -> Promise:
    told = [one for one in seen.ends if not one.error]
    back, behind = [], []
    findings = list(seen.ask_failures)
    for partition in range(PARTITIONS):
        of_it = [one for one in told if one.partition == partition]
        findings += unless(of_it, f"no offset of partition {partition} was told")
        acked = [one for one in seen.acked if one.partition == partition]
        first_s = min((one.at_s for one in acked), default=inf)
        to_judge = any(one.asked_s > first_s for one in of_it)
        findings += unless(to_judge, f"no offset of partition {partition} was told after an order was acknowledged")
        back += went_back(of_it)
        behind += too_low(of_it, acked)
    findings += back + behind
    asked = {one.node_id for one in seen.ends}
    findings += [f"node {node_id} never answered" for node_id in NODE_IDS if node_id not in asked]
    after_kill = [one for one in told if one.at_s > seen.killed_s and one.partition == 0]
    before_kill = [one for one in told if one.at_s <= seen.killed_s and one.partition == 0]
    findings += unless(after_kill and before_kill, "no offset was told before the leader was killed, or none after it")
    others = [one for one in after_kill if one.node_id != seen.killed_leader]
    findings += unless(seen.killed_leader >= 0 and others, "no other node told an offset after the leader was killed")
    silence_s = min((one.at_s for one in after_kill), default=0.0) - max((one.at_s for one in before_kill), default=0.0)
    held_back = sum(one.error == NOT_AVAILABLE for one in seen.ends)
    return Promise(
        "KIP-207",
        "Latest offsets never go back, nor behind what was acknowledged, not through the death of a leader either",
        {
            "answers": len(told),
            "refused for now (OFFSET_NOT_AVAILABLE)": held_back,
            "refused by who does not lead": len(seen.ends) - len(told) - held_back,
            "went back": len(back),
            "below what was acknowledged": len(behind),
            "nodes that answered": len(asked),
            "nothing told for, in seconds": round(max(silence_s, 0.0), 2),
        },
        findings,
    )


def went_back(told: list[ToldEnd]) -> list[str]:
    """Answers below one that somebody had before the question was asked."""
    return [f"{_answer(one)}, after {highest} had been told"
            for one, highest in _below(told, [Known(one.at_s, one.offset) for one in told])]  # fmt: skip


def too_low(told: list[ToldEnd], acked: list[Acked]) -> list[str]:
    """Answers that leave out an order which was acknowledged before the question was asked."""
    return [f"{_answer(one)}, after the order before {end} had been acknowledged"
            for one, end in _below(told, [Known(one.at_s, one.offset + 1) for one in acked])]  # fmt: skip


class Known(NamedTuple):
    """From then on somebody knew that the log reaches so far."""

    at_s: float
    end: int


def _below(told: list[ToldEnd], known: list[Known]) -> Iterator[tuple[ToldEnd, int]]:
    """Answers below what was known when the question was asked, and that."""
    known = sorted(known)
    highest, at = -1, 0
    for one in sorted(told, key=lambda one: one.asked_s):
        while at < len(known) and known[at].at_s < one.asked_s:
            highest = max(highest, known[at].end)
            at += 1
        if one.offset < highest:
            yield one, highest


def _answer(one: ToldEnd) -> str:
    return f"at {one.at_s:.2f} s node {one.node_id} told {one.offset} of partition {one.partition}"
