"""Carrying out decisions: transactions on the store. What they change in the image comes back by its feed.

A topic becomes visible, grows or vanishes with one write of its own key. Where its partitions do not fit into that
transaction, they are written before (or deleted after) under the key of an unfinished work, which every such write
compares: after a crash, or when somebody took over, nothing is left that is not listed there.
False means that a compare failed: somebody else has written, and the decision must be made again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from headrace.core.cluster import BrokerOverrides, PartitionRecord, Topic
from headrace.core.coverage import CoverageRecord
from headrace.metadata import records
from headrace.metadata.store import Cmp, MetadataStoreError, OutcomeUnknown, Put, TxnResult

T = TypeVar("T")

BATCH = 120
"""Partitions in one transaction: below the limit of a store, with room for the keys beside them."""
TXNS_AT_ONCE = 64


class Txns(Protocol):
    """A store as far as decisions need it: each of them is fenced."""

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult: ...


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


async def write_topic(store: Txns, plan: TopicPlan) -> bool:
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
        return (await store.txn(when + [Cmp(put.key, 0) for put in new], puts + new)).ok
    key = records.unfinished_key(plan.topic_id)
    unfinished = records.UnfinishedRecord(plan.first, plan.last)
    ok, fence = await store.txn([Cmp(key, 0)], [Put(key, records.encode(unfinished))])
    if not ok or not await _write_fenced(store, _new_partitions(plan), Cmp(key, fence)):
        return False
    return (await store.txn([*when, Cmp(key, fence)], puts, [key])).ok


async def delete_topic(store: Txns, topic: Topic) -> bool:
    """The topic is gone when this returns; partition records of a large one may follow later."""
    settings_key, key = records.topic_settings_key(topic.name), records.topic_key(topic.name)
    when = [Cmp(key, topic.mod_rev), Cmp(settings_key, topic.overrides_rev)]
    deletes = [key] + ([settings_key] if topic.overrides_rev else [])
    revs = dict(enumerate(topic.partition_revs))
    if len(revs) <= BATCH:
        partitions = {records.partition_key(topic.id, index): rev for index, rev in revs.items()}
        compares = when + [Cmp(partition, rev) for partition, rev in partitions.items()]
        return (await store.txn(compares, deletes=[*deletes, *partitions])).ok
    unfinished_key = records.unfinished_key(topic.id)
    unfinished = records.encode(records.UnfinishedRecord(0, len(revs)))
    ok, fence = await store.txn([*when, Cmp(unfinished_key, 0)], [Put(unfinished_key, unfinished)], deletes)
    if not ok:
        return False
    # The topic is gone, whatever happens now; who loads the store next finds the rest listed.
    with contextlib.suppress(MetadataStoreError, OutcomeUnknown):
        await _delete_leftover(store, topic.id, revs, fence)
    return True


async def clean_up(
    store: Txns, topic_id: bytes, unfinished: records.UnfinishedRecord, rev: int, leftover: Mapping[int, int]
) -> bool:
    """Undoes somebody's unfinished work, after making sure that nobody can go on with it."""
    key = records.unfinished_key(topic_id)
    taken = records.UnfinishedRecord(unfinished.first, unfinished.last, unfinished.taken_over + 1)
    ok, fence = await store.txn([Cmp(key, rev)], [Put(key, records.encode(taken))])
    return ok and await _delete_leftover(store, topic_id, leftover, fence)


async def _delete_leftover(store: Txns, topic_id: bytes, leftover: Mapping[int, int], fence: int) -> bool:
    key = records.unfinished_key(topic_id)
    doomed = [Cmp(records.partition_key(topic_id, index), rev) for index, rev in leftover.items()]
    results = await in_waves(
        store.txn([*batch, Cmp(key, fence)], deletes=[compare.key for compare in batch])
        for batch in batches(doomed, BATCH)
    )
    return all(ok for ok, _ in results) and (await store.txn([Cmp(key, fence)], deletes=[key])).ok


class Changed(NamedTuple):
    """A new record of an existing partition, decided on the record that had this revision."""

    topic: Topic
    partition: int
    record: PartitionRecord
    rev: int


class CoverageChange(NamedTuple):
    """What the replicas of a partition have on their own disks, beside its record."""

    topic_id: bytes
    partition: int
    record: CoverageRecord
    rev: int


async def write_coverage(store: Txns, changed: Sequence[CoverageChange]) -> bool:
    """In batches, each whole or not at all. Records of partitions are neither compared nor written."""

    async def write(batch: Sequence[CoverageChange]) -> bool:
        return (await store.txn(*_coverage_of(batch))).ok

    return all(await in_waves(write(batch) for batch in batches(changed, BATCH)))


def _coverage_of(changed: Iterable[CoverageChange]) -> tuple[list[Cmp], list[Put]]:
    when, puts = [], []
    for topic_id, index, record, rev in changed:
        key = records.coverage_key(topic_id, index)
        when.append(Cmp(key, rev))
        puts.append(Put(key, records.encode(record)))
    return when, puts


async def write_partitions_with(store: Txns, changed: Sequence[tuple[Changed, CoverageChange | None]]) -> bool:
    """A partition's record and what rides on its change are written together."""
    if all(coverage is None for _, coverage in changed):
        return await write_partitions(store, [change for change, _ in changed])

    async def write(batch: Sequence[tuple[Changed, CoverageChange | None]]) -> bool:
        when, puts = _coverage_of(coverage for _, coverage in batch if coverage is not None)
        for change, _ in batch:
            key = records.partition_key(change.topic.id, change.partition)
            when.append(Cmp(key, change.rev))
            puts.append(Put(key, records.encode(change.record)))
        return (await store.txn(when, puts)).ok

    return all(await in_waves(write(batch) for batch in batches(changed, BATCH // 2)))


async def write_partitions(store: Txns, changed: Sequence[Changed]) -> bool:
    """In batches, each whole or not at all."""

    async def write(batch: Sequence[Changed]) -> bool:
        keys = [records.partition_key(change.topic.id, change.partition) for change in batch]
        when = [Cmp(key, change.rev) for key, change in zip(keys, batch, strict=True)]
        puts = [Put(key, values[change.record]) for key, change in zip(keys, batch, strict=True)]
        return (await store.txn(when, puts)).ok

    values = {record: records.encode(record) for record in {change.record for change in changed}}
    return all(await in_waves(write(batch) for batch in batches(changed, BATCH)))


async def write_topic_overrides(store: Txns, topic: Topic, overrides: Mapping[str, str]) -> bool:
    # The topic's key too: nobody may configure what is being deleted.
    fence = Cmp(records.topic_key(topic.name), topic.mod_rev)
    key = records.topic_settings_key(topic.name)
    return await _write_overrides(store, key, topic.overrides_rev, overrides, [fence])


async def write_broker_overrides(store: Txns, known: BrokerOverrides, overrides: Mapping[str, str]) -> bool:
    return await _write_overrides(store, records.broker_settings_key(known.broker_id), known.rev, overrides, [])


async def _write_overrides(
    store: Txns, key: bytes, known_rev: int, overrides: Mapping[str, str], fences: list[Cmp]
) -> bool:
    when = [*fences, Cmp(key, known_rev)]
    if not overrides:
        return (await store.txn(when, deletes=[key])).ok
    return (await store.txn(when, [Put(key, records.encode(records.OverridesRecord(dict(overrides))))])).ok


def _new_partitions(plan: TopicPlan) -> list[Put]:
    values = {record: records.encode(record) for record in set(plan.partitions)}
    return [
        Put(records.partition_key(plan.topic_id, index), values[record])
        for index, record in enumerate(plan.partitions, plan.first)
    ]


async def _write_fenced(store: Txns, puts: Sequence[Put], fence: Cmp) -> bool:
    waves = batches(puts, BATCH)
    results = await in_waves(store.txn([fence, *(Cmp(put.key, 0) for put in batch)], batch) for batch in waves)
    return all(ok for ok, _ in results)


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
