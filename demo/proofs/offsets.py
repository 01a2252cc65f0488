"""KIP-207: latest offsets that clients were told never go back."""

from demo.evidence import Evidence, ToldEnd
from demo.plan import NODE_IDS
from demo.proofs.promise import Promise, unless

NOT_AVAILABLE = 78


def never_back(seen: Evidence) -> Promise:
    told = [one for one in seen.ends if not one.error]
    back = [finding for partition in sorted({one.partition for one in told})
            for finding in went_back([one for one in told if one.partition == partition])]  # fmt: skip
    findings = back + seen.ask_failures
    asked = {one.node_id for one in seen.ends}
    findings += [f"node {node_id} never answered" for node_id in NODE_IDS if node_id not in asked]
    after_kill = [one for one in told if one.at_s > seen.killed_s and one.partition == 0]
    before_kill = [one for one in told if one.at_s <= seen.killed_s and one.partition == 0]
    findings += unless(after_kill and before_kill, "no offset was told before the leader was killed, or none after it")
    silence_s = min((one.at_s for one in after_kill), default=0.0) - max((one.at_s for one in before_kill), default=0.0)
    held_back = sum(one.error == NOT_AVAILABLE for one in seen.ends)
    return Promise(
        "KIP-207",
        "Latest offsets never go back, not through the death of a leader either",
        {
            "answers": len(told),
            "refused for now (OFFSET_NOT_AVAILABLE)": held_back,
            "refused by who does not lead": len(seen.ends) - len(told) - held_back,
            "went back": len(back),
            "nodes that answered": len(asked),
            "nothing told for, in seconds": round(max(silence_s, 0.0), 2),
        },
        findings,
    )


def went_back(told: list[ToldEnd]) -> list[str]:
    """Answers below one that somebody had before the question was asked."""
    findings = []
    heard = sorted(told, key=lambda one: one.at_s)
    highest, at = -1, 0
    for one in sorted(told, key=lambda one: one.asked_s):
        while at < len(heard) and heard[at].at_s < one.asked_s:
            highest = max(highest, heard[at].offset)
            at += 1
        if one.offset < highest:
            findings.append(
                f"at {one.at_s:.2f} s node {one.node_id} told {one.offset} of partition {one.partition}, "
                f"after {highest} had been told"
            )
    return findings
