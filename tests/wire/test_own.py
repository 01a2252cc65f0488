"""Messages of our own: no other codec knows them, so that their bytes are written down here."""

from headrace.wire.compiler import decode, encode
from headrace.wire.messages.commit_group import CommitGroupRequest, CommitGroupResponse, GroupHandle
from headrace.wire.messages.inspection import InspectRequest, InspectResponse
from headrace.wire.messages.replication import (
    AlterPartitionPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopicData,
    BrokerState,
    StepDownPartition,
    StepDownRequest,
    StepDownResponse,
    StepDownResult,
)

TOPIC_ID = bytes(range(16))


def test_inspect_is_a_kind_with_arguments_and_gets_a_code_with_bytes() -> None:
    request = InspectRequest(kind="why", args=["events", "0"])
    wire = b"\x04why\x03\x07events\x020\x00"
    assert encode(request, 0) == wire and decode(InspectRequest, 0, wire) == request
    response = InspectResponse(error_code=42, body=b"{}")
    wire = b"\x00\x2a\x03{}\x00"
    assert encode(response, 0) == wire and decode(InspectResponse, 0, wire) == response


def test_a_commit_group_names_its_batch_and_handles_and_hears_what_was_decided() -> None:
    handle = GroupHandle(transactional_id="t", producer_id=5, producer_epoch=2)
    request = CommitGroupRequest(op=1, scope="s", query_id="q", batch_id=7, run_id="r", handles=[handle])
    named = b"\x02\x02t" + bytes([0] * 7 + [5, 0, 2, 0])
    wire = b"\x01\x02s\x02q" + bytes([0] * 7 + [7]) + b"\x02r" + named + b"\x00"
    assert encode(request, 0) == wire and decode(CommitGroupRequest, 0, wire) == request
    response = CommitGroupResponse(
        error_code=48, error_message="no", decided=True, last_committed=6, last_run_id="r", bad_handles=["t"]
    )
    wire = b"\x00\x30\x03no\x01" + bytes([0] * 7 + [6]) + b"\x02r\x02\x02t\x00"
    assert encode(response, 0) == wire and decode(CommitGroupResponse, 0, wire) == response
    nothing = CommitGroupRequest(op=0, scope="s", query_id="q")
    assert decode(CommitGroupRequest, 0, encode(nothing, 0)) == nothing
    assert CommitGroupResponse().last_committed == -1


def test_a_step_down_names_the_controllers_epoch_and_the_partition_epochs_it_is_good_for() -> None:
    request = StepDownRequest(
        controller_epoch=7, partitions=[StepDownPartition(topic_id=TOPIC_ID, partition=1, partition_epoch=9)]
    )
    wire = bytes([0] * 7 + [7, 2]) + TOPIC_ID + bytes([0, 0, 0, 1, 0, 0, 0, 9, 0, 0])
    assert encode(request, 0) == wire and decode(StepDownRequest, 0, wire) == request
    response = StepDownResponse(partitions=[StepDownResult(topic_id=TOPIC_ID, partition=1, error_code=95)])
    wire = b"\x02" + TOPIC_ID + bytes([0, 0, 0, 1, 0, 95, 0, 0])
    assert encode(response, 0) == wire and decode(StepDownResponse, 0, wire) == response


def test_a_proposal_that_resumes_says_so_in_a_tag_of_our_own() -> None:
    def proposal(resume: bool) -> AlterPartitionRequest:
        data = AlterPartitionPartitionData(
            partition_index=0,
            leader_epoch=1,
            new_isr_with_epochs=[BrokerState(broker_id=1, broker_epoch=5)],
            partition_epoch=2,
            resume=resume,
        )
        topics = [AlterPartitionTopicData(topic_id=TOPIC_ID, partitions=[data])]
        return AlterPartitionRequest(broker_id=1, broker_epoch=5, topics=topics)

    plain, resuming = (encode(proposal(resume), 3) for resume in (False, True))
    # One tag, number 10012, one byte long: true. Kafka's own reading of the message skips it.
    assert resuming == plain[:-3] + b"\x01" + bytes([0x9C, 0x4E, 1, 1]) + plain[-2:]
    assert decode(AlterPartitionRequest, 3, resuming) == proposal(True)
