"""Reading remote segments back, with the eyes of `headrace tier verify`."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.cli.outcome import Failure
from headrace.cli.progress import Bar
from headrace.core.tier_rows import SegmentRow
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.manifest import CorruptManifest, load
from headrace.tier.opening import open_for_tools
from headrace.tier.store import ObjectMissing, ObjectStore, Refused, StoreUnavailable
from headrace.tier.verify import verify_segment

Document = dict[str, Any]
Again = Callable[[], Awaitable[list[Document]]]
FINISHED = "copy_finished"
ATTEMPTS = 10
NOBODY = "No node tells of it: it is not tiered, or it has no leader, or that has no tier or does not answer."


class Checked(NamedTuple):
    segments: int
    bytes: int
    problems: list[Document]
    left_out: list[Document]
    """Partitions of which it is not known whether all is well, and why."""


class LeftOut(Exception):
    """A partition was not checked: the text says why."""


async def check(
    partitions: Sequence[Document], url: str | None, again: Again, expected: Iterable[tuple[str, int]] = ()
) -> Checked:
    """`again` asks the brokers anew: what has expired since is no problem. `expected` are all that must be told of."""
    offload = ThreadOffload()
    verifying = _Verifying(url, again, offload)
    try:
        return await verifying.check(partitions, expected)
    except Refused as refused:
        raise Failure(str(refused)) from refused
    except StoreUnavailable as failure:
        hint = "Give --store if this machine reaches it elsewhere; a bucket needs the brokers' credentials here too"
        raise Failure(f"{str(failure).rstrip('.')}. {hint}") from failure
    finally:
        await verifying.close()
        offload.close()


class _Verifying:
    def __init__(self, url: str | None, again: Again, offload: ThreadOffload) -> None:
        self._url = url
        self._again = again
        self._offload = offload
        self._opened: dict[str, ObjectStore] = {}
        self._segments = self._bytes = 0
        self._bar: Bar | None = None

    async def close(self) -> None:
        for store in self._opened.values():
            await store.close()

    async def check(self, partitions: Sequence[Document], expected: Iterable[tuple[str, int]]) -> Checked:
        found: list[Document] = []
        told = {_name(partition) for partition in partitions}
        left_out = [
            {"topic": topic, "partition": index, "reason": NOBODY}
            for topic, index in expected
            if (topic, index) not in told
        ]
        wanted_bytes = sum(one["bytes"] for partition in partitions for one in _finished(partition))
        with Bar("bytes verified", wanted_bytes, wanted=True) as self._bar:
            for partition in partitions:
                try:
                    found += await self._problems(partition)
                except LeftOut as reason:
                    topic, index = _name(partition)
                    left_out.append({"topic": topic, "partition": index, "reason": str(reason)})
        if found:
            current = await self._again()
            named = {segment["object"] for partition in current for segment in partition.get("segments", ())}
            named |= {partition.get("manifest") for partition in current}
            found = [problem for problem in found if problem["object"] in named]
        return Checked(self._segments, self._bytes, found, left_out)

    async def _problems(self, partition: Document) -> list[Document]:
        """Raises LeftOut."""
        for _ in range(ATTEMPTS):
            if "segments" not in partition:
                raise LeftOut(partition["failure"] or "Its leader has not read its manifest yet.")
            key = partition["manifest"]
            if not key:
                return []
            store = self._store(partition)
            try:
                rows = {row.id: row for row in (await load(store, key)).rows}
            except CorruptManifest as failure:
                return [_problem(partition, key, str(failure))]
            except ObjectMissing:
                # Its leader puts another one in its place whenever something is copied, or deleted.
                newer = next((one for one in await self._again() if _name(one) == _name(partition)), None)
                if newer is None:
                    raise LeftOut(NOBODY) from None
                if newer.get("manifest") == key:
                    return [_problem(partition, key, "The object is missing.")]
                partition = newer
                continue
            return await self._problems_of_segments(store, partition, rows)
        raise LeftOut("Its manifest changed each time before it could be read.")

    async def _problems_of_segments(
        self, store: ObjectStore, partition: Document, rows: Mapping[str, SegmentRow]
    ) -> list[Document]:
        found = []
        for segment in _finished(partition):
            self._segments += 1
            row = rows.get(segment["id"])
            texts = ["The manifest does not name it."]
            if row is not None:
                texts = await verify_segment(store, segment["object"], row, self._progress)
            found += [_problem(partition, segment["object"], text) for text in texts]
        return found

    def _progress(self, size: int) -> None:
        self._bytes += size
        if self._bar is not None:
            self._bar.show(self._bytes)

    def _store(self, partition: Document) -> ObjectStore:
        place = self._url or partition["url"]
        if place not in self._opened:
            self._opened[place] = open_for_tools(place, self._offload, SystemRandom())
        return self._opened[place]


def _name(partition: Document) -> tuple[str, int]:
    return partition["topic"], partition["partition"]


def _problem(partition: Document, key: str, text: str) -> Document:
    return {"topic": partition["topic"], "partition": partition["partition"], "object": key, "problem": text}


def _finished(partition: Document) -> list[Document]:
    return [segment for segment in partition.get("segments", ()) if segment["state"] == FINISHED]
