"""The controller's question to a leader, before it moves a leadership: the asking side."""

from collections.abc import Mapping, Sequence

from headrace.broker.broker import Broker
from headrace.controller.moves import AskStepDown, StepDown
from headrace.errors import ErrorCode
from headrace.wire.messages.replication import StepDownPartition, StepDownRequest, StepDownResponse

ANSWER_MS_MAX = 2_000


def asking(broker: Broker) -> AskStepDown:
    client_id = f"headrace-controller-{broker.node_id}"

    async def ask(
        broker_id: int, controller_epoch: int, asked: Sequence[StepDown]
    ) -> Mapping[tuple[bytes, int], ErrorCode]:
        """PeerLost, which is an OSError, when there is no answer."""
        if broker_id == broker.node_id:
            return {
                (topic_id, index): broker.roles.step_down(topic_id, index, epoch) for topic_id, index, epoch in asked
            }
        request = StepDownRequest(
            controller_epoch=controller_epoch,
            partitions=[StepDownPartition(topic_id=t, partition=n, partition_epoch=epoch) for t, n, epoch in asked],
        )
        answer = await broker.peers.ask(broker_id, request, StepDownResponse, 0, ANSWER_MS_MAX, client_id)
        return {(told.topic_id, told.partition): ErrorCode(told.error_code) for told in answer.partitions}

    return ask
