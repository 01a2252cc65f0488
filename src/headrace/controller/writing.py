"""Carrying out decisions: transactions on the store, and the changes of the image that they amount to.

A topic becomes visible, grows or vanishes with one write of its own key. Where its partitions do not fit into that
transaction, they are written before (or deleted after) under the key of an unfinished work, which every such write
compares: after a crash, or when somebody took over, nothing is left that is not listed there.
None means that a compare failed: somebody else has written, and the decision must be made again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from headrace.core.cluster import (
    BrokerOverrides,
    PartitionPut,
    PartitionRecord,
    Topic,
    TopicGone,
    TopicOverrides,
    TopicPut,
)
from headrace.metadata import records
from headrace.metadata.store import Cmp, MetadataStoreError, MetaStore, OutcomeUnknown, Put

T = TypeVar("T")

BATCH = 120
"""Partitions in one transaction: below the limit of a store, with room for the keys beside them."""
TXNS_AT_ONCE = 64


class TopicPlan(NamedTuple):
    """A topic to create (`first` 0), or partitions to add to one."""

    name: str
    topic_id: bytes
    partitions: Sequence[PartitionRecord]
    first: int = 0
    topic_rev: int = 0
    overrides: Mapping[str, str] = MappingProxyType({})

    @property
    def last(self) -> int:
        return self.first + len(self.partitions)


async def write_topic(store: MetaStore, plan: TopicPlan) -> TopicPut | None:
    record = records.TopicRecord(plan.topic_id.hex(), plan.last)
    when = [Cmp(records.topic_key(plan.name), plan.topic_rev)]
    puts = [Put(records.topic_key(plan.name), records.encode(record))]
    if plan.first == 0:
        settings_key = records.topic_settings_key(plan.name)
        when.append(Cmp(settings_key, 0))
        if plan.overrides:
            puts.append(Put(settings_key, records.encode(records.OverridesRecord(dict(plan.overrides)))))
    if len(plan.partitions) <= BATCH:
        new = _new_partitions(plan)
        ok, rev = await store.txn(when + [Cmp(put.key, 0) for put in new], puts + new)
        revs = [rev] * len(new)
    else:
        key = records.unfinished_key(plan.topic_id)
        unfinished = records.UnfinishedRecord(plan.first, plan.last)
        ok, fence = await store.txn([Cmp(key, 0)], [Put(key, records.encode(unfinished))])
        if not ok:
            return None
        written = await _write_fenced(store, _new_partitions(plan), Cmp(key, fence))
        if written is None:
            return None
        revs = written
        ok, rev = await store.txn([*when, Cmp(key, fence)], puts, [key])
    if not ok:
        return None
    return TopicPut(
        plan.name, plan.topic_id, plan.partitions, revs, rev, plan.first, plan.overrides, rev if plan.overrides else 0
    )


async def delete_topic(store: MetaStore, topic: Topic) -> TopicGone | None:
    """The topic is gone when this returns; partition records of a large one may follow later."""
    settings_key, key = records.topic_settings_key(topic.name), records.topic_key(topic.name)
    when = [Cmp(key, topic.mod_rev), Cmp(settings_key, topic.overrides_rev)]
    deletes = [key] + ([settings_key] if topic.overrides_rev else [])
    gone = TopicGone(topic.name, topic.id)
    revs = dict(enumerate(topic.partition_revs))
    if len(revs) <= BATCH:
        partitions = {records.partition_key(topic.id, index): rev for index, rev in revs.items()}
        ok, _ = await store.txn(
            when + [Cmp(partition, rev) for partition, rev in partitions.items()], deletes=[*deletes, *partitions]
        )
        return gone if ok else None
    unfinished_key = records.unfinished_key(topic.id)
    unfinished = records.encode(records.UnfinishedRecord(0, len(revs)))
    ok, fence = await store.txn([*when, Cmp(unfinished_key, 0)], [Put(unfinished_key, unfinished)], deletes)
    if not ok:
        return None
    # The topic is gone, whatever happens now; who loads the store next finds the rest listed.
    with contextlib.suppress(MetadataStoreError, OutcomeUnknown):
        await _delete_leftover(store, topic.id, revs, fence)
    return gone


async def clean_up(
    store: MetaStore, topic_id: bytes, unfinished: records.UnfinishedRecord, rev: int, leftover: Mapping[int, int]
) -> bool:
    """Undoes somebody's unfinished work, after making sure that nobody can go on with it."""
    key = records.unfinished_key(topic_id)
    taken = records.UnfinishedRecord(unfinished.first, unfinished.last, unfinished.taken_over + 1)
    ok, fence = await store.txn([Cmp(key, rev)], [Put(key, records.encode(taken))])
    return ok and await _delete_leftover(store, topic_id, leftover, fence)


async def _delete_leftover(store: MetaStore, topic_id: bytes, leftover: Mapping[int, int], fence: int) -> bool:
    key = records.unfinished_key(topic_id)
    doomed = [Cmp(records.partition_key(topic_id, index), rev) for index, rev in leftover.items()]
    results = await in_waves(
        store.txn([*batch, Cmp(key, fence)], deletes=[compare.key for compare in batch])
        for batch in batches(doomed, BATCH)
    )
    return all(ok for ok, _ in results) and (await store.txn([Cmp(key, fence)], deletes=[key])).ok


async def write_partitions(
    store: MetaStore, changed: Iterable[tuple[Topic, int, PartitionRecord]]
) -> list[PartitionPut] | None:
    """New records of existing partitions, each compared with the revision that the image holds."""

    async def write(batch: Sequence[tuple[Topic, int, PartitionRecord]]) -> list[PartitionPut] | None:
        keys = [records.partition_key(topic.id, index) for topic, index, _ in batch]
        when = [Cmp(key, topic.partition_revs[index]) for key, (topic, index, _) in zip(keys, batch, strict=True)]
        puts = [Put(key, values[record]) for key, (_, _, record) in zip(keys, batch, strict=True)]
        ok, rev = await store.txn(when, puts)
        return [PartitionPut(topic.id, index, record, rev) for topic, index, record in batch] if ok else None

    changed = list(changed)
    values = {record: records.encode(record) for _, _, record in changed}
    results = await in_waves(write(batch) for batch in batches(changed, BATCH))
    written = [result for result in results if result is not None]
    return [put for result in written for put in result] if len(written) == len(results) else None


async def write_topic_overrides(store: MetaStore, topic: Topic, overrides: Mapping[str, str]) -> TopicOverrides | None:
    # The topic's key too: nobody may configure what is being deleted.
    fence = Cmp(records.topic_key(topic.name), topic.mod_rev)
    rev = await _write_overrides(store, records.topic_settings_key(topic.name), topic.overrides_rev, overrides, [fence])
    return None if rev is None else TopicOverrides(topic.name, overrides, rev)


async def write_broker_overrides(
    store: MetaStore, known: BrokerOverrides, overrides: Mapping[str, str]
) -> BrokerOverrides | None:
    rev = await _write_overrides(store, records.broker_settings_key(known.broker_id), known.rev, overrides, [])
    return None if rev is None else BrokerOverrides(known.broker_id, overrides, rev)


async def _write_overrides(
    store: MetaStore, key: bytes, known_rev: int, overrides: Mapping[str, str], fences: list[Cmp]
) -> int | None:
    when = [*fences, Cmp(key, known_rev)]
    if not overrides:
        return 0 if (await store.txn(when, deletes=[key])).ok else None
    ok, rev = await store.txn(when, [Put(key, records.encode(records.OverridesRecord(dict(overrides))))])
    return rev if ok else None


def _new_partitions(plan: TopicPlan) -> list[Put]:
    values = {record: records.encode(record) for record in set(plan.partitions)}
    return [
        Put(records.partition_key(plan.topic_id, index), values[record])
        for index, record in enumerate(plan.partitions, plan.first)
    ]


async def _write_fenced(store: MetaStore, puts: Sequence[Put], fence: Cmp) -> list[int] | None:
    """The revision of each put, or None when the fence has moved."""
    waves = list(batches(puts, BATCH))
    results = await in_waves(store.txn([fence, *(Cmp(put.key, 0) for put in batch)], batch) for batch in waves)
    if not all(ok for ok, _ in results):
        return None
    return [rev for batch, (_, rev) in zip(waves, results, strict=True) for _ in batch]


async def in_waves(works: Iterable[Awaitable[T]]) -> list[T]:
    """A store commits together what it gets together. Raises OutcomeUnknown if any outcome is unknown."""
    results: list[T] = []
    for wave in batches(works, TXNS_AT_ONCE):
        failures = []
        for result in await asyncio.gather(*wave, return_exceptions=True):
            if isinstance(result, BaseException):
                failures.append(result)
            else:
                results.append(result)
        if failures:
            raise next((failure for failure in failures if isinstance(failure, OutcomeUnknown)), failures[0])
    return results


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
