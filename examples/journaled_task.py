"""A task that journals its state, and is restarted elsewhere while the old one still runs.

Whoever starts tasks may be wrong about a machine that does not answer: the task there lives on. The new one takes the
journal over, reads it to its fence, and goes on from there. The old one finds out with its next entry, which does not
get in: no step counts before it is in the journal.

    python examples/journaled_task.py                      tells a story, with a broker of its own
    python examples/journaled_task.py 127.0.0.1:9092 anna  runs the task, if nobody does
    python examples/journaled_task.py 127.0.0.1:9092 ben 1 restarts it here, whatever became of generation 1
"""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass

from headrace import own
from headrace.client import Admin, Consumer, NewTopic
from headrace.model import TopicPartition
from headrace.testing import Cluster

JOURNAL = TopicPartition("journal", 0)
STEP_S = 0.01


@dataclass(frozen=True)
class State:
    """The task adds up numbers, and pretends that this is hard."""

    step: int = 0
    total: int = 0
    by: str = "nobody"

    def after_next_step(self, name: str) -> "State":
        return State(self.step + 1, self.total + self.step, name)


async def run(bootstrap: str, name: str, generation: int | None = None, steps: int = sys.maxsize) -> State:
    """From where the journal ends. OwnershipLost: it runs elsewhere now, and this one is over."""
    async with own.claim(bootstrap, "task", JOURNAL, generation, exclusive="produce", client_id=name) as ownership:
        print(f"{name} runs the task, at generation {ownership.generation}", flush=True)
        state = State()
        async for record in ownership.backlog(JOURNAL):
            state = State(**json.loads(record.value or b""))
        async with ownership.producer(linger_ms=0) as producer:
            while state.step < steps:
                following = state.after_next_step(name)
                await asyncio.sleep(STEP_S)
                await ownership.regained()  # at once, unless a leader is moving
                entry = json.dumps(asdict(following)).encode()
                await producer.send(JOURNAL.topic, entry, partition=JOURNAL.partition)
                state = following
                print(f"journaled {ownership.generation} {state.step}", flush=True)
        return state


async def journal(bootstrap: str, until: int) -> list[State]:
    """What anybody can read of it, up to that step."""
    states: list[State] = []
    async with Consumer(bootstrap) as consumer:
        consumer.assign([JOURNAL])
        while not states or states[-1].step < until:
            states += [State(**json.loads(record.value or b"")) for record in await consumer.poll(1_000)]
    return states


async def create_journal(bootstrap: str) -> bool:
    """False: it is there already."""
    async with Admin(bootstrap) as admin:
        if JOURNAL.topic in await admin.list_topics():
            return False
        await admin.create_topics([NewTopic(JOURNAL.topic, partitions=1)])
        return True


async def story(bootstrap: str) -> list[State]:
    """Anna runs the task; it is restarted with Ben, and nobody has told Anna."""
    if not await create_journal(bootstrap):
        sys.exit(f"The story begins with a new journal: delete {JOURNAL.topic} first, or tell it without an address.")
    anna = asyncio.create_task(run(bootstrap, "anna"))
    await journal(bootstrap, until=20)
    result = await run(bootstrap, "ben", generation=1, steps=60)
    (end,) = await asyncio.gather(anna, return_exceptions=True)
    print("anna:", end)
    print("ben:", result)
    states = await journal(bootstrap, until=60)
    assert [state.step for state in states] == list(range(1, 61))
    assert result.total == sum(range(60))
    return states


async def main(bootstrap: str = "", name: str = "", generation: str = "") -> None:
    if name:
        await create_journal(bootstrap)
        await run(bootstrap, name, int(generation) if generation else None)
    elif bootstrap:
        await story(bootstrap)
    else:
        async with Cluster() as cluster:
            await story(cluster.bootstrap)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
