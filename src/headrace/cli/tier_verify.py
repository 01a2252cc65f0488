"""Reading remote segments back, with the eyes of `headrace tier verify`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.cli import output
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


class Checked(NamedTuple):
    segments: int
    bytes: int
    problems: list[Document]


async def check(partitions: Sequence[Document], url: str | None, again: Again) -> Checked:
    """`again` asks the brokers anew: what has expired since is no problem."""
    offload = ThreadOffload()
    opened: dict[str, ObjectStore] = {}
    try:
        return await _check(partitions, url, again, offload, opened)
    except Refused as refused:
        raise Failure(str(refused)) from refused
    except StoreUnavailable as failure:
        raise Failure(f"{failure} Give --store if this machine reaches it elsewhere") from failure
    finally:
        for store in opened.values():
            await store.close()
        offload.close()


async def _check(
    partitions: Sequence[Document],
    url: str | None,
    again: Again,
    offload: ThreadOffload,
    opened: dict[str, ObjectStore],
) -> Checked:
    for partition in partitions:
        if "segments" not in partition:
            output.say(f"headrace: {partition['topic']}-{partition['partition']} is left out: {partition['failure']}")
    known = [partition for partition in partitions if partition.get("manifest")]
    wanted = [segment for partition in known for segment in _finished(partition)]
    found: list[Document] = []
    done = 0
    with Bar("bytes verified", sum(segment["bytes"] for segment in wanted), wanted=True) as bar:

        def progress(size: int) -> None:
            nonlocal done
            done += size
            bar.show(done)

        for partition in known:
            place = url or partition["url"]
            if place not in opened:
                opened[place] = open_for_tools(place, offload, SystemRandom())
            found += await _problems(opened[place], partition, progress)
    if found:
        current = await again()
        named = {segment["object"] for partition in current for segment in partition.get("segments", ())}
        named |= {partition["manifest"] for partition in current}
        found = [problem for problem in found if problem["object"] in named]
    return Checked(len(wanted), done, found)


async def _problems(store: ObjectStore, partition: Document, progress: Callable[[int], None]) -> list[Document]:
    def problem(key: str, text: str) -> Document:
        return {"topic": partition["topic"], "partition": partition["partition"], "object": key, "problem": text}

    key = partition["manifest"]
    try:
        rows: Mapping[str, SegmentRow] = {row.id: row for row in (await load(store, key)).rows}
    except ObjectMissing:
        return [problem(key, "The object is missing.")]
    except CorruptManifest as failure:
        return [problem(key, str(failure))]
    found = []
    for segment in _finished(partition):
        row = rows.get(segment["id"])
        if row is None:
            found.append(problem(segment["object"], "The manifest does not name it."))
            continue
        texts = await verify_segment(store, segment["object"], row, progress)
        found += [problem(segment["object"], text) for text in texts]
    return found


def _finished(partition: Document) -> list[Document]:
    return [segment for segment in partition["segments"] if segment["state"] == FINISHED]
