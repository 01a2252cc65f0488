"""How long a coordinator reads offsets back before it serves them: `python -m bench.group_loading [OFFSETS]`.

A million of them unless told otherwise, in a thousand groups that one partition keeps. The broker is stopped, then
killed; until it has read all of them back it answers that it loads.
"""

import sys
import tempfile
import time
from pathlib import Path

from bench.raw import RawClient
from bench.startup import machine
from headrace.errors import ErrorCode
from headrace.wire.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tests.servers.headrace import headrace_broker
from tests.servers.process import BrokerProcess

TOPIC = "offsets"
GROUPS = 1_000
SETTINGS = {"offsets.topic.num.partitions": "1"}
ASK_S = 0.01


def commit(client: RawClient, offsets: int) -> None:
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while client.ask(asked, 4, FindCoordinatorResponse).coordinators[0].error_code:
        time.sleep(ASK_S)
    places = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=n, committed_metadata="")
        for n in range(offsets // GROUPS)
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=places)]
    for number in range(GROUPS):
        while True:
            answer = client.ask(OffsetCommitRequest(group_id=f"group-{number}", topics=topics), 8, OffsetCommitResponse)
            codes = {place.error_code for topic in answer.topics for place in topic.partitions}
            if codes == {0}:
                break
            assert codes <= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}, codes
            time.sleep(ASK_S)


def load(broker: BrokerProcess, offsets: int) -> str:
    """From the first answer of a broker that has just started."""
    last = offsets // GROUPS - 1
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[last])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=f"group-{GROUPS - 1}", topics=topics)])
    began, cpu_s, told = time.monotonic(), broker.cpu_s(), 0
    with RawClient(broker.port) as client:
        while (answer := client.ask(asked, 8, OffsetFetchResponse).groups[0]).error_code:
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, answer.error_code
            told += 1
            time.sleep(ASK_S)
    assert answer.topics[0].partitions[0].committed_offset == last
    took_s = time.monotonic() - began
    return f"{took_s:.1f} s, {broker.cpu_s() - cpu_s:.1f} CPU s, {told} times told that it loads"


def main() -> None:
    offsets = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        broker = headrace_broker(Path(directory), SETTINGS)
        print(f"{machine()}; {offsets:,} offsets of {GROUPS:,} groups", flush=True)
        broker.start()
        try:
            with RawClient(broker.port) as client:
                client.create_topic(TOPIC, offsets // GROUPS)
                began = time.monotonic()
                commit(client, offsets)
            print(f"committed in {time.monotonic() - began:.1f} s, {broker.rss_bytes() / 1e6:.0f} MB", flush=True)
            broker.stop()
            broker.start()
            print(f"loaded after a stop: {load(broker, offsets)}", flush=True)
            broker.kill()
            broker.start()
            print(f"loaded after a kill: {load(broker, offsets)}", flush=True)
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
