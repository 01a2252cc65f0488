"""Anna owns the ledger, is paused, and comes back after Ben has taken over."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from demo.child import Child, Document
from demo.evidence import Takeover, Written
from demo.plan import LEDGER
from demo.reading import READ_S_MAX
from headrace.client import Consumer
from headrace.model import TopicPartition


class Owners:
    def __init__(self, bootstrap: str, directory: Path, takeover: Takeover) -> None:
        self._bootstrap, self._directory = bootstrap, directory
        self._takeover = takeover
        self._children: list[Child] = []
        takeover.old, takeover.new = "anna", "ben"

    def begin(self) -> None:
        anna = self._start("anna", self._heard_of_anna)
        anna.until(lambda: self._takeover.old_acked, "anna owns the ledger, and writes")

    def pause_the_owner(self) -> None:
        self._children[0].signal(signal.SIGSTOP)

    def take_over(self) -> None:
        ben = self._start("ben", self._heard_of_ben, str(self._takeover.old_generation))
        ben.until(lambda: self._takeover.new_acked, "ben has taken over, and writes")

    def resume_the_old_one(self) -> None:
        """Returns when it was told that it is no owner any more, and what became of its raw write."""
        before = self._takeover.new_acked_before_return = len(self._takeover.new_acked)
        anna, ben = self._children
        anna.signal(signal.SIGCONT)
        anna.until(lambda: anna.process.poll() is not None, "anna has ended")
        ben.until(lambda: len(self._takeover.new_acked) > before, "ben goes on")

    def end(self) -> None:
        for child in self._children:
            child.kill()

    def read_back(self) -> None:
        self._takeover.log = asyncio.run(asyncio.wait_for(_ledger(self._bootstrap), READ_S_MAX))

    def _start(self, name: str, on_line: Callable[[Document], None], *arguments: str) -> Child:
        log = self._directory / f"{name}.log"
        child = Child("demo.owner", self._bootstrap, name, *arguments, log=log, on_line=on_line)
        self._children.append(child)
        return child

    def _heard_of_anna(self, told: Document) -> None:
        over = self._takeover
        over.old_generation = told.get("generation", over.old_generation)
        over.old_acked += [told["acked"]] if "acked" in told else []
        over.last_words = told.get("fenced", over.last_words)
        over.raw_refusal = told.get("refused", over.raw_refusal)
        over.raw_refusal_code = told.get("code", over.raw_refusal_code)

    def _heard_of_ben(self, told: Document) -> None:
        over = self._takeover
        over.new_generation = told.get("generation", over.new_generation)
        over.fence = told.get("fence", over.fence)
        over.new_acked += [told["acked"]] if "acked" in told else []


async def _ledger(bootstrap: str) -> list[Written]:
    partition = TopicPartition(LEDGER, 0)
    found: list[Written] = []
    async with Consumer(bootstrap) as consumer:
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.assign([partition])
        while await consumer.position(partition) < end:
            for record in await consumer.poll(1_000):
                owner, _, number = (record.value or b"").decode().partition(" ")
                found.append(Written(record.offset, owner, int(number)))
    return found
