"""The tier as a broker knows it: the object store, and what of each partition is in it.

Of a partition that this node leads, the manifest is kept in memory, from soon after the leadership begins until it ends
(`TierLog`). Of all others the pointer in the image says enough. Who copies and deletes is beside this file.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.broker.partitions import Hosted, Partitions
from headrace.broker.tier_metrics import TierMetrics
from headrace.controller.tier_pointer import TierPointers
from headrace.core.cluster import ClusterImage, Topic
from headrace.core.epochs import NO_OFFSET
from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_pointer import Pointer
from headrace.core.tier_rows import Manifest, SegmentRow, empty_manifest
from headrace.errors import ErrorCode
from headrace.metadata.store import MetadataStoreError, OutcomeUnknown
from headrace.runtime import Clock, Random, tell_bug
from headrace.tier import layout
from headrace.tier.manifest import CorruptManifest, load
from headrace.tier.marking import Marks, check, recognise
from headrace.tier.store import ObjectMissing, ObjectStore, Refused, StoreUnavailable

log = logging.getLogger(__name__)

LOADS_AT_ONCE = 8
PROBE_S_MAX = 10.0
LOOK_S_MAX = 2.0
RETRY_S = 1.0
RETRY_S_MAX = 30.0
_VARYING = re.compile(r"\b[0-9a-f]{32}\b|\d[\d.]*(µs|ms|s)?\b")


SWEEP_ROUNDS_TROUBLED, SWEEP_ROUNDS = 10, 120
"""After how many rounds of work it is looked for objects that nothing names: after trouble, and without."""


class Doubt(NamedTuple):
    """A manifest of which nobody knows whether it is, or will be, in force."""

    manifest: Manifest
    key: str


class TierLog:
    """What the tier has of one partition that this node leads, under one leader epoch.

    `manifest` is that of the newest pointer whose outcome is known; None until it is loaded.
    """

    def __init__(self, partition: Hosted) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.manifest: Manifest | None = None
        self.manifest_key = ""
        """Empty: there is none, and `manifest` is an empty one."""
        self.rev = 0
        """Of the pointer."""
        self.is_loaded = asyncio.Event()
        self.failure = ""
        """Why it is not loaded yet: one sentence."""
        self.stopped = ""
        """Why the last round of work on it ended early: a clause or a sentence."""
        self.is_over = False
        """This node does not lead it any more, under that epoch."""
        self.doubt: Doubt | None = None
        self.uploaded: set[str] = set()
        """Rows whose objects are stored, and that no manifest in force has finished yet."""
        self.is_publishing = False
        self.given_up_ms: int | None = None
        """When it was first seen, by the monotonic clock, that all of it is to go, and none is to be copied."""
        self.rounds_to_sweep = 0
        self._was_swept = False
        self._remote: RemoteLog | None = None
        self._made_from: tuple[Manifest, tuple[tuple[int, int], ...]] | None = None

    @property
    def remote(self) -> RemoteLog:
        """The segments that may be served: finished ones inside the leader's lineage. Only when it is loaded."""
        manifest, opened = self.manifest, self.partition.log
        assert manifest is not None
        made_from = manifest, opened.epochs.entries
        if self._remote is None or self._made_from is None or self._made_from != made_from:
            self._remote = RemoteLog(manifest.rows, made_from[1], self.partition.log_end_offset)
            self._made_from = made_from
        return self._remote

    @property
    def highest_remote_offset(self) -> int | None:
        """From the log start up to it, inclusive, all is in the tier; -1: nothing is; None: not known yet."""
        if self.manifest is None:
            return None
        return self.remote.highest_offset(self.partition.log_start_offset)

    def took(self, manifest: Manifest, key: str, rev: int) -> None:
        """It is in force."""
        self.manifest, self.manifest_key, self.rev = manifest, key, rev

    def trouble(self) -> None:
        """Something may have been stored, or not deleted, that nothing names."""
        self.rounds_to_sweep = min(self.rounds_to_sweep, SWEEP_ROUNDS_TROUBLED)

    def swept(self, found: int) -> None:
        """Once more soon if there was something, or it was the first time: what a leader before sent may come late."""
        is_quiet = self._was_swept and not found
        self._was_swept = True
        self.rounds_to_sweep = SWEEP_ROUNDS if is_quiet else SWEEP_ROUNDS_TROUBLED


class Tier:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        random: Random,
        store: ObjectStore,
        image: ClusterImage,
        pointers: TierPointers,
        marks: Marks,
    ) -> None:
        self.store = store
        self.pointers = pointers
        self._marks = marks
        self.metrics = TierMetrics()
        self.on_loaded: list[Callable[[TierLog], None]] = []
        """Its manifest is known from now on."""
        self.clock = clock
        self._random = random
        self._loop = loop
        self._image = image
        self._logs: dict[Hosted, TierLog] = {}
        self._loading: dict[TierLog, asyncio.Task[None]] = {}
        self._load_slots = asyncio.Semaphore(LOADS_AT_ONCE)
        self.is_proven = asyncio.Event()
        """The store is the cluster's own, and was seen to keep its promise: before that nothing is written to it."""
        self.absence = ""
        """Why it is not proven yet: one sentence."""
        self._new_mark = self.new_id()
        self._proof: asyncio.Task[None] | None = None

    async def prove(self, on_refused: Callable[[str], None]) -> None:
        """Before the node serves. Raises Refused. If the store cannot be asked yet, `on_refused` may be told later."""
        try:
            async with asyncio.timeout(PROBE_S_MAX):
                await self._prove_once()
        except TimeoutError:
            self._is_absent("It does not answer.")
        if not self.is_proven.is_set():
            self._proof = self._loop.create_task(self._prove_later(on_refused))

    async def _prove_once(self) -> None:
        """Raises Refused."""
        try:
            await recognise(
                self.store, self._marks, self._image.cluster_id, self._new_mark, probe_bits=self._random.bits(128)
            )
        except (StoreUnavailable, MetadataStoreError) as failure:
            self._is_absent(str(failure))
        except OutcomeUnknown:
            self._is_absent("The metadata store does not say whether it knows of it.")
        else:
            self.absence = ""
            self.is_proven.set()

    def _is_absent(self, reason: str) -> None:
        """The same reason twice is one line, whatever names and times it tells of: they differ at every attempt."""
        if _VARYING.sub("", reason) != _VARYING.sub("", self.absence):
            log.warning("the object store cannot be used yet, and is tried again: %s", reason)
        self.absence = reason

    async def _prove_later(self, on_refused: Callable[[str], None]) -> None:
        pause_s = RETRY_S
        while not self.is_proven.is_set():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)
            try:
                await self._prove_once()
            except Refused as refused:
                on_refused(str(refused))
                return

    async def look(self) -> None:
        """Whether the store is still there, for somebody who asks: where nothing is to be copied, nobody else does."""
        if not self.is_proven.is_set():
            return
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                mark = await self._marks.read()
                assert mark is not None, "it was proven by it"
                await check(self.store, self._image.cluster_id, mark)
        except TimeoutError:
            self.absence = "It does not answer."
        except StoreUnavailable as failure:
            self.absence = str(failure)
        except MetadataStoreError:
            return  # which says nothing of the object store
        else:
            self.absence = ""

    # For everybody.

    def log_of(self, partition: Hosted) -> TierLog | None:
        """None where this node does not lead, or the topic is not tiered. It may not be loaded yet."""
        return self._logs.get(partition)

    def logs(self) -> list[TierLog]:
        return list(self._logs.values())

    def manifest(self, partition: Hosted) -> Manifest | None:
        """As its leader: None while it is not known."""
        known = self._logs.get(partition)
        return None if known is None else known.manifest

    def highest_remote(self, partition: Hosted) -> int | None:
        """Leader or follower: up to it, inclusive, the tier has what this replica has. -1: nothing; None: not known."""
        known = self._logs.get(partition)
        if known is not None and known.manifest is not None:
            return known.highest_remote_offset
        pointer = self.pointer(partition)
        if pointer is None:
            return None if known is not None else NO_OFFSET
        opened = partition.log
        is_known = pointer.highest_remote_offset < 0 or pointer.is_of(opened.epochs, opened.log_end_offset)
        return pointer.highest_remote_offset if is_known else None

    def pointer(self, partition: Hosted) -> Pointer | None:
        stored = self._image.tier.get((partition.topic_id, partition.index))
        return None if stored is None else stored.pointer

    def segment_key(self, partition: Hosted, row: SegmentRow) -> str:
        name = layout.SegmentName(row.base_offset, row.leader_epoch, row.id)
        return layout.segment_key(self._image.cluster_id, partition.topic_id, partition.index, name)

    def manifest_key(self, partition: Hosted, manifest: Manifest) -> str:
        """A new one each time."""
        name = layout.ManifestName(manifest.leader_epoch, manifest.number, self.new_id())
        return layout.manifest_key(self._image.cluster_id, partition.topic_id, partition.index, name)

    def partition_prefix(self, topic_id: bytes, index: int) -> str:
        return layout.partition_prefix(self._image.cluster_id, topic_id, index)

    def new_id(self) -> str:
        return layout.new_id(self._random.bits(128))

    # Leading.

    def began(self, partition: Hosted) -> None:
        """This node leads it, or goes on under another leader epoch, or its settings changed."""
        known = self._logs.get(partition)
        is_wanted = partition.config.remote_storage_enable or self.pointer(partition) is not None
        if known is not None and known.leader_epoch == partition.leader_epoch and is_wanted:
            return
        self.ended(partition)
        if is_wanted:
            begun = self._logs[partition] = TierLog(partition)
            self.reload(begun)

    def reload(self, tier_log: TierLog) -> None:
        """What is in force is another manifest than the one that is known. That one serves until it is there."""
        tier_log.is_loaded.clear()
        if tier_log not in self._loading:
            self._loading[tier_log] = self._loop.create_task(self._load(tier_log))

    def applied(self, changed: Iterable[tuple[bytes, int]], partitions: Partitions) -> None:
        """Pointers have moved. Those of partitions that this node leads it moves itself, and knows before."""
        for topic_id, index in changed:
            partition = partitions.find(topic_id, index)
            known = None if isinstance(partition, ErrorCode) else self._logs.get(partition)
            if known is None or not known.is_loaded.is_set() or known.is_publishing or known.doubt is not None:
                continue
            stored = self._image.tier.get((topic_id, index))
            if stored is not None and stored.rev > known.rev:
                self.reload(known)

    def topics_deleted(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self.metrics.forget(topic.name)

    def configured(self, topics: Iterable[Topic], partitions: Partitions) -> None:
        for topic in topics:
            for partition in partitions.hosted_of(topic.id):
                if partition.is_leading and not partition.error:
                    self.began(partition)

    def ended(self, partition: Hosted) -> None:
        known = self._logs.pop(partition, None)
        if known is not None:
            known.is_over = True
            self.metrics.ended(partition)
            task = self._loading.pop(known, None)
            if task is not None:
                task.cancel()

    async def _load(self, tier_log: TierLog) -> None:
        pause_s = RETRY_S
        while not tier_log.is_over:
            try:
                async with self._load_slots:
                    await self._load_once(tier_log)
                break
            except (StoreUnavailable, CorruptManifest, MetadataStoreError) as failure:
                self._cannot_load(tier_log, str(failure))
            except ObjectMissing as missing:
                self._cannot_load(tier_log, f"There is no object {missing}, its manifest.")
            except Exception as bug:  # whatever it is must not cut the partition off for the rest of the node's life
                tier_log.failure = f"Its manifest cannot be read: {bug or type(bug).__name__}."
                tell_bug(f"{tier_log.partition}: its manifest cannot be read, and is tried again", bug)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)
        self._loading.pop(tier_log, None)
        if tier_log.is_over:
            return
        tier_log.failure = ""
        for told in self.on_loaded:
            told(tier_log)
        tier_log.is_loaded.set()

    def _cannot_load(self, tier_log: TierLog, why: str) -> None:
        """It is tried for as long as it takes: the same reason is told once."""
        if tier_log.failure != why:
            log.warning("%s: its manifest cannot be read yet: %s", tier_log.partition, why)
        tier_log.failure = why

    async def _load_once(self, tier_log: TierLog) -> None:
        """As the store has it, which the image may not yet: this node may have heard by another way that it leads."""
        partition = tier_log.partition
        stored = await self.pointers.read(partition.topic_id, partition.index)
        if stored is None:
            start = partition.log_start_offset
            tier_log.took(empty_manifest(partition.topic_id, partition.index, tier_log.leader_epoch, start), "", 0)
            return
        if stored.pointer.leader_epoch > tier_log.leader_epoch:
            raise MetadataStoreError("another node leads it already")
        manifest = await load(self.store, stored.pointer.manifest)
        if not tier_log.is_over:
            tier_log.took(manifest, stored.pointer.manifest, stored.rev)

    async def close(self) -> None:
        tasks = list(self._loading.values())
        if self._proof is not None:
            self._proof.cancel()
            tasks.append(self._proof)
        for tier_log in self.logs():
            self.ended(tier_log.partition)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()
