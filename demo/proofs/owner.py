"""`headrace.own`: whoever was paused and comes back writes nothing behind the fence."""

from demo.evidence import Evidence
from demo.proofs.promise import Promise, unless
from headrace.errors import ErrorCode


def old_owner_is_fenced(seen: Evidence) -> Promise:
    over = seen.takeover
    began = min((one.offset for one in over.log if one.owner == over.new), default=over.fence)
    border = min(began, over.fence)
    late = [one for one in over.log if one.offset >= border and one.owner == over.old]
    findings = [f"{one.owner} wrote {one.number} at {one.offset}, behind the fence at {border}" for one in late]
    findings += unless(began >= over.fence, f"{over.new} wrote at {began}, before the fence at {over.fence}")
    findings += unless(over.new_generation > over.old_generation >= 0, "nobody took over")
    went_on = len(over.new_acked) > over.new_acked_before_return > 0
    findings += unless(went_on, f"{over.new} did not write before {over.old} came back, or not after it")
    findings += unless(over.last_words, f"{over.old} was never told that it is no owner any more")
    findings += unless(over.raw_refusal, f"{over.old} was let in when it wrote past its library")
    if over.raw_refusal:
        fenced = over.raw_refusal_code == ErrorCode.PRODUCER_FENCED
        findings += unless(fenced, f"{over.old} was not fenced off when it wrote past its library: {over.raw_refusal}")
    for owner, acked in ((over.old, over.old_acked), (over.new, over.new_acked)):
        numbers = [one.number for one in over.log if one.owner == owner]
        findings += unless(
            numbers and numbers == sorted(set(numbers)), f"what {owner} wrote is doubled or out of order"
        )
        findings += unless(acked, f"nothing that {owner} wrote was acknowledged")
        missing = set(acked) - set(numbers)
        findings += unless(not missing, f"{len(missing)} records of {owner} were acknowledged, and are not there")
    return Promise(
        "headrace.own (OWN.md)",
        "An owner that was paused and comes back is fenced off",
        {
            "generations": f"{over.old_generation} ({over.old}), {over.new_generation} ({over.new})",
            "fence offset": over.fence,
            "acknowledged records of both": len(over.old_acked) + len(over.new_acked),
            "of the old one behind the fence": len(late),
            "what it was told": over.last_words,
            "its raw write": over.raw_refusal,
        },
        findings,
    )
