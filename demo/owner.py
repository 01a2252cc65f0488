"""An owner of a partition, as a process: `python -m demo.owner BOOTSTRAP NAME [GENERATION]`.

It claims the ledger, and writes to it until it is told that another one has it. Then it does what a zombie would do: it
writes past its library, with a producer that has never heard of owners. One JSON document a line tells of it.
"""

import asyncio
import json
import sys

from demo.plan import LEDGER
from headrace import own
from headrace.client import Producer
from headrace.errors import KafkaError
from headrace.model import TopicPartition

PARTITION = TopicPartition(LEDGER, 0)
PACE_S = 0.1
GROUP = "bookkeepers"


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


async def keep_books(bootstrap: str, name: str, generation: int | None) -> None:
    async with own.claim(bootstrap, GROUP, PARTITION, generation, exclusive="produce", client_id=name) as ownership:
        say(generation=ownership.generation, fence=ownership.fence_offset)
        async with ownership.producer() as producer:
            number = 0
            while True:
                try:
                    await producer.send(LEDGER, b"%s %d" % (name.encode(), number), partition=0)
                except own.OwnershipLost:
                    await ownership.regained()  # raises again when another one has it
                    number += 1  # whether the last one is stored is not known
                    continue
                say(acked=number)
                number += 1
                await asyncio.sleep(PACE_S)


async def write_past_the_library(bootstrap: str, name: str) -> None:
    async with Producer(bootstrap, delivery_ms_max=5_000) as producer:
        stored = await producer.send(LEDGER, b"%s %d" % (name.encode(), 1 << 40), partition=0)
        say(let_in=stored.offset)


async def main(bootstrap: str, name: str, generation: str = "") -> None:
    try:
        await keep_books(bootstrap, name, int(generation) if generation else None)
    except own.OwnershipLost as lost:
        say(fenced=lost.message)
    try:
        await write_past_the_library(bootstrap, name)
    except KafkaError as refusal:
        say(refused=str(refusal), code=int(refusal.code))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
