"""The composition root: from a configuration to a running node. Nothing else makes parts and hands them to others."""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headrace.broker import tier_missing
from headrace.broker.appends import Appends
from headrace.broker.broker import Broker
from headrace.broker.cleaner import Cleaner
from headrace.broker.commits import Commits
from headrace.broker.coordinators.groups import Groups
from headrace.broker.coordinators.internal_topics import InternalTopics
from headrace.broker.coordinators.transactions import Transactions
from headrace.broker.directories import claim, keep_reserves
from headrace.broker.disk import DiskFaults
from headrace.broker.dispatch import Dispatcher
from headrace.broker.handlers import DECIDED, HANDLERS
from headrace.broker.housekeeping import Housekeeping
from headrace.broker.isr_updates import IsrUpdates
from headrace.broker.list_guards import ListGuards
from headrace.broker.local_coverage import Coverages
from headrace.broker.metrics import Metrics
from headrace.broker.monitoring import Monitoring
from headrace.broker.ownership import Ownership
from headrace.broker.ownership_grants import Grants
from headrace.broker.ownership_requests import OwnRequests
from headrace.broker.parking import FetchEvents
from headrace.broker.partitions import Partitions
from headrace.broker.peers import Peers
from headrace.broker.replicator import Replicator
from headrace.broker.roles import Roles
from headrace.broker.stepping_down import asking
from headrace.broker.store_health import StoreHealth
from headrace.broker.tier import Tier
from headrace.broker.tier_fetching import reads_for
from headrace.broker.tier_following import TierFollowing
from headrace.broker.tier_lookups import TierLookups
from headrace.broker.tier_retention import before_leading, begin_on_disk, local_coverage
from headrace.broker.tier_work import TierWork
from headrace.config import BrokerConfig
from headrace.controller.controller import Controller
from headrace.controller.registration import NotRegistered, Past
from headrace.core.cluster import ClusterImage, Diff
from headrace.metadata.opening import open_store
from headrace.metadata.store import MetadataStoreError, MetaStore
from headrace.net.connection import Connection
from headrace.net.http import HttpServer
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.listener import Listener
from headrace.net.transport import Address
from headrace.node_config import NodeConfig, NotStarted, Ports, open_files_max, split_address
from headrace.settings import InvalidSetting
from headrace.storage.checkpoints import CorruptCheckpoint
from headrace.storage.errors import InUse, WrongFormat
from headrace.storage.identity import Identity, LastRun
from headrace.storage.log_dir import LogDir
from headrace.tier.opening import open_object_store
from headrace.tier.store import Refused
from headrace.wire.apis import APIS
from headrace.wire.compiler import precompile

log = logging.getLogger(__name__)

READY_S_MAX = 5.0
"""How long a starting node waits to be elected again where it led before."""

DRAIN_S_MAX = 30.0
"""How long a stopping node waits for requests that are under way."""

COMMIT_S_MAX = 2.0
"""How long a stopping node waits for others to copy what it was given: where too few are left they never will."""

HOT_APIS = (0, 1, 3, 18)
"""Compiled before the first client comes; the others on first use."""


class _Part(NamedTuple):
    """Something that runs, and the two ways in which it ends. Either may be a coroutine function."""

    stop: Callable[[], object]
    abandon: Callable[[], object]


class Node:
    def __init__(self, config: NodeConfig, ports: Ports | None = None) -> None:
        self.config = config
        self.address = ""
        """What clients are told."""
        self.listen_address = ""
        self.metrics_address = ""
        self.broker: Broker | None = None
        self._ports = Ports() if ports is None else ports
        self._parts: list[_Part] = []
        self._serving = False
        self.fatal: asyncio.Future[str] | None = None
        """Done when the process must end with exit code 1, with one sentence."""

    async def start(self) -> None:
        """Raises NotStarted; then nothing stays behind."""
        self.fatal = asyncio.get_running_loop().create_future()
        try:
            await self._start()
        except (
            InvalidSetting,
            MetadataStoreError,
            InUse,
            WrongFormat,
            CorruptCheckpoint,
            NotStarted,
            NotRegistered,
            OSError,
        ) as error:
            await self.stop()
            raise NotStarted(_sentence(self.config, error)) from error

    async def _start(self) -> None:
        ports, loop = self._ports, asyncio.get_running_loop()
        precompile(*(APIS[key].request for key in HOT_APIS), encoders=False)
        precompile(*(APIS[key].response for key in HOT_APIS), decoders=False)
        image = ClusterImage(self.config.node_id, self.config.settings)
        directories = self._open_directories()
        store = await self._open_store()
        self._parts.append(_Part(store.close, store.close))
        controller = Controller(store, image, ports.clock, ports.random)
        self._parts.append(_Part(controller.stop, controller.abandon))
        await controller.start()
        if (refusal := claim(directories, image.cluster_id, self.config.node_id, ports.random)) is not None:
            raise NotStarted(refusal)
        self._identify(controller, directories)
        keep_reserves(directories, image.broker_config.disk_reserve_bytes)
        partitions = Partitions(directories, ports.random, image)
        hub = Hub(loop, self._limits(image.broker_config), image.broker_config.queued_max_request_bytes)
        broker = self.broker = self._assemble(hub, image, controller, partitions)
        await self._add_tier(broker)
        for directory in directories:
            directory.before_loss = controller.lost_data
        # In one turn with the load: every later change of the image is told.
        broker.roles.start()
        if partitions.has_lost_records:
            controller.lost_data()
        partitions.set_strays_aside()
        controller.listen(_follow(broker, hub, self._limits))
        await self._listen(hub, broker, directories)
        await self._join(controller, directories)
        broker.isr_updates.start(lambda: image.broker_config.replica_lag_time_max_ms)
        self._parts.append(_Part(broker.isr_updates.close, broker.isr_updates.close))
        broker.coverage_reports.start()
        self._parts.append(_Part(broker.coverage_reports.close, broker.coverage_reports.close))
        housekeeping = Housekeeping(broker)
        housekeeping.start()
        self._parts.append(_Part(housekeeping.stop, housekeeping.stop))
        if broker.tier is not None:
            work = TierWork(broker, broker.tier)
            work.start()
            self._parts.append(_Part(work.close, work.close))
        cleaner = Cleaner(broker, ports.make_apart)
        cleaner.start()
        self._parts.append(_Part(cleaner.stop, cleaner.abandon))
        self._parts.append(_Part(controller.leave, lambda: None))
        self._serving = True

    async def _listen(self, hub: Hub, broker: Broker, directories: list[LogDir]) -> None:
        dispatcher = Dispatcher(broker, HANDLERS, DECIDED)
        listener = Listener(hub, self._gate(dispatcher), broker.connection_closed)
        broker.ownership.connections = lambda: listener.connections
        host, port = split_address(self.config.listen)
        bound = await listener.start(self._ports.network, host, port)
        self._parts.append(
            _Part(
                lambda: self._drain(broker, dispatcher, listener, directories),
                lambda: self._cut_off(broker, listener),
            )
        )
        self.listen_address = str(Address(host, bound.port))
        self.address = str(self._advertised(Address(host, bound.port)))
        await self._serve_pages(Monitoring(broker, listener, lambda: self._serving))

    def _identify(self, controller: Controller, directories: list[LogDir]) -> None:
        """What the directories remember of the last run, and whether they have lost anything since."""
        ports, registration = self._ports, controller.registration
        identity = Identity(directories, ports.clock.boot_id(), ports.mount_id_of)
        last = identity.last_run()
        registration.past = Past(last.lease_id, last.incarnation, last.broker_epoch, last.intact_since)
        registration.remember = lambda past: identity.remember(
            LastRun(past.lease_id, past.incarnation, past.broker_epoch, past.intact_since)
        )
        controller.on_end(self._end_at_once)

    async def _join(self, controller: Controller, directories: list[LogDir]) -> None:
        host, port = split_address(self.address)
        await controller.register(
            host,
            port,
            controller.image.broker_config.broker_rack,
            origin=self._ports.origin_of(directories[0].path),
            log_dirs=tuple(directory.path for directory in directories),
        )
        if not await controller.ready(READY_S_MAX):
            log.warning("node %d serves although nobody has elected it again yet", self.config.node_id)

    def _end_at_once(self, sentence: str) -> None:
        """Another process has this node's number, no disk is left, or a part failed. Who runs this one must end it."""
        log.error("%s", sentence)
        self._serving = False
        if self.fatal is not None and not self.fatal.done():
            self.fatal.set_result(sentence)

    @property
    def broker_epoch(self) -> int:
        """Of the registration that stands now; 0 while there is none."""
        return 0 if self.broker is None else self.broker.controller.registration.epoch

    async def sees(self, nodes: int) -> None:
        """Until so many nodes, this one among them, and a controller are known to this node."""
        assert self.broker is not None
        image, seen = self.broker.image, asyncio.Event()

        def look(_: Diff) -> None:
            if len(image.brokers) >= nodes and image.controller is not None:
                seen.set()

        self.broker.controller.listen(look)
        look(Diff())
        await seen.wait()

    async def _open_store(self) -> MetaStore:
        ports = self._ports
        if ports.open_store is not None:
            return await ports.open_store(self.config.metadata)
        return await open_store(self.config.metadata, ports.offload, ports.clock)

    def _assemble(self, hub: Hub, image: ClusterImage, controller: Controller, partitions: Partitions) -> Broker:
        ports, loop = self._ports, hub.loop
        fetch_events = FetchEvents(loop, hub.turn, ports.random, partitions, ports.is_allowed, image.broker_config)
        faults = DiskFaults(ports.offload, partitions, fetch_events)
        guards = ListGuards()
        commits = Commits(fetch_events, guards)
        appends = Appends(hub.turn, ports.clock, ports.offload, faults, fetch_events)
        peers = Peers(ports.network, Hub(loop, Limits()), image)
        isr_updates = IsrUpdates(
            loop=loop, clock=ports.clock, image=image, controller=controller, peers=peers, commits=commits
        )
        replicator = self._replicator(controller, peers, faults, isr_updates.coverages)
        roles = Roles(
            loop=loop,
            clock=ports.clock,
            image=image,
            own_epoch=lambda: controller.registration.epoch,
            partitions=partitions,
            appends=appends,
            events=fetch_events,
            commits=commits,
            guards=guards,
            isr_updates=isr_updates,
            replicator=replicator,
        )
        self._parts += [_Part(peers.close, peers.close), _Part(replicator.close, replicator.close)]
        # At the end of a turn: what was produced is written, who waited for it is answered, then all answers leave.
        hub.turn.before_writes += [appends.end_turn, fetch_events.end_turn]
        broker = Broker(
            node_id=self.config.node_id,
            loop=loop,
            clock=ports.clock,
            random=ports.random,
            offload=ports.offload,
            image=image,
            controller=controller,
            partitions=partitions,
            appends=appends,
            faults=faults,
            fetch_events=fetch_events,
            peers=peers,
            commits=commits,
            guards=guards,
            isr_updates=isr_updates,
            roles=roles,
            store_health=self._store_health(controller),
            metrics=Metrics(),
            is_allowed=ports.is_allowed,
        )
        broker.on_connection_closed.append(fetch_events.connection_closed)
        self._add_ownership(broker)
        self._add_coordinators(broker)
        replicator.on_lost = broker.absences.stopped_answering
        controller.ask_step_down_by(asking(broker))
        faults.on_loss = controller.lost_data
        faults.on_offline = roles.ended
        faults.announce = broker.announce_offline
        faults.on_last_failed = self._end_at_once
        return broker

    async def _add_tier(self, broker: Broker) -> None:
        """Raises NotStarted for a store that cannot be used, and without one where topics need it."""
        config, ports = broker.config, self._ports
        broker.roles.on_leading.append(partial(begin_on_disk, broker))
        if not config.remote_log_storage_system_enable:
            if (refusal := tier_missing.refusal(broker.image)) is not None:
                raise NotStarted(refusal)
            if config.remote_storage_url:
                log.warning("remote.storage.url has no effect, since remote.log.storage.system.enable is false")
            broker.controller.listen(tier_missing.watch(broker.image))
            return
        try:
            store = (
                open_object_store(config.remote_storage_url, ports.files, ports.offload, ports.random)
                if ports.open_object_store is None
                else ports.open_object_store(config.remote_storage_url)
            )
            tier = broker.tier = Tier(
                loop=broker.loop,
                clock=broker.clock,
                random=broker.random,
                store=store,
                image=broker.image,
                pointers=broker.controller.tier_pointers,
                marks=broker.controller.tier_mark,
            )
            self._parts.append(_Part(tier.close, tier.close))
            await tier.prove(self._end_at_once)
        except Refused as refused:
            raise NotStarted(str(refused)) from refused
        reads = broker.tier_reads = reads_for(broker, tier)
        lookups = broker.tier_lookups = TierLookups(broker.loop, tier, config.remote_log_reader_threads)
        self._parts += [_Part(reads.loads.close, reads.loads.close), _Part(lookups.close, lookups.close)]
        broker.roles.on_ended.append(lookups.ended)
        broker.roles.replicator.tier = TierFollowing(broker.image, store, tier.metrics)
        broker.isr_updates.coverages.report = local_coverage
        broker.roles.before_leading.append(partial(before_leading, broker))
        broker.roles.on_leading.append(tier.began)
        broker.roles.on_ended.append(tier.ended)

    def _store_health(self, controller: Controller) -> StoreHealth:
        beat_ms = controller.image.broker_config.broker_heartbeat_interval_ms
        return StoreHealth(controller.registration, self._ports.clock, beat_ms)

    def _add_coordinators(self, broker: Broker) -> None:
        internal_topics = broker.internal_topics = InternalTopics(broker)
        groups, transactions = Groups(broker), Transactions(broker)
        broker.groups, broker.transactions = groups, transactions
        for close in (groups.close, internal_topics.close, transactions.close, broker.verification.close):
            self._parts.append(_Part(close, close))

    def _add_ownership(self, broker: Broker) -> None:
        own = broker.ownership = Ownership(
            loop=broker.loop,
            clock=broker.clock,
            controller=broker.controller,
            partitions=broker.partitions,
            events=broker.fetch_events,
            lease_remaining_ms=broker.store_health.lease_remaining_ms,
        )
        broker.own_grants = Grants(broker.loop, own)
        requests = broker.own_requests = OwnRequests(broker, broker.own_grants)
        own.on_unowned = requests.unowned
        broker.partitions.on_hosted = own.hosted
        broker.roles.on_leading.append(own.began)
        broker.roles.on_ended.append(own.ended)
        broker.on_connection_closed += [requests.connection_closed, own.connection_closed]
        self._parts.append(_Part(own.close, own.close))

    def _advertised(self, listening: Address) -> Address:
        if not self.config.advertise:
            return listening
        host, port = split_address(self.config.advertise)
        return Address(host, port or listening.port)

    def _replicator(self, controller: Controller, peers: Peers, faults: DiskFaults, coverages: Coverages) -> Replicator:
        return Replicator(
            node_id=self.config.node_id,
            broker_epoch=lambda: controller.registration.epoch,
            clock=self._ports.clock,
            offload=self._ports.offload,
            leaders=peers,
            faults=faults,
            config=lambda: controller.image.broker_config,
            coverages=coverages,
        )

    def _gate(self, dispatcher: Dispatcher) -> Callable[[Connection, bytearray], None]:
        """The port is open before the partitions are: whoever is that early comes again."""

        def on_frame(connection: Connection, frame: bytearray) -> None:
            if self._serving:
                dispatcher.on_frame(connection, frame)
            else:
                connection.close()

        return on_frame

    def _limits(self, config: BrokerConfig) -> Limits:
        descriptors = self._ports.descriptors_max
        # An eighth is for syncs, the metadata store and the monitoring port. A flood of connections must never be the
        # reason why a data file cannot be opened.
        left = max(1, descriptors - open_files_max(descriptors) - descriptors // 8)
        return Limits(
            frame_bytes_max=config.socket_request_max_bytes,
            idle_ms_max=config.connections_max_idle_ms,
            connections_max=min(config.max_connections, left),
            connections_per_ip_max=config.max_connections_per_ip,
        )

    # Directories.

    def _open_directories(self) -> list[LogDir]:
        directories: list[LogDir] = []
        self._parts.append(
            _Part(lambda: self._close_directories(directories), lambda: self._abandon_directories(directories))
        )
        for path in filter(None, self.config.data.split(",")):
            directories.append(LogDir(self._ports.files, path))
        if not directories:
            raise NotStarted("--data names no directory")
        return directories

    def _close_directories(self, directories: list[LogDir]) -> None:
        while directories:
            for partition, failure in directories.pop().close():
                log.error("%s was not closed cleanly, and is checked at the next start: %s", partition, failure)

    def _abandon_directories(self, directories: list[LogDir]) -> None:
        for directory in directories:
            directory.abandon()

    # Pages and the end.

    async def _serve_pages(self, monitoring: Monitoring) -> None:
        host, port = split_address(self.config.metrics)
        server = HttpServer(asyncio.get_running_loop(), monitoring.page)
        bound = await server.start(self._ports.network, host, port)
        self._parts.append(_Part(server.close, server.close))
        self.metrics_address = str(Address(host, bound.port))

    async def _drain(
        self, broker: Broker, dispatcher: Dispatcher, listener: Listener, directories: list[LogDir]
    ) -> None:
        listener.close()
        broker.fetch_events.answer_all()
        broker.groups.answer_all()
        broker.own_requests.answer_all()
        await dispatcher.drain()
        resigning = broker.loop.call_later(COMMIT_S_MAX, broker.roles.resign)
        await listener.drain(DRAIN_S_MAX)
        resigning.cancel()
        await broker.roles.replicator.close()
        await broker.appends.drain()
        self._close_directories(directories)  # before the lease ends: what comes after it finds everything on disk

    async def _cut_off(self, broker: Broker, listener: Listener) -> None:
        broker.appends.abandon()
        await listener.drain(0)

    async def stop(self) -> None:
        """Finishes requests, flushes, marks the directories clean. In the reverse order of the start."""
        await self._end(lambda part: part.stop)

    async def abandon(self) -> None:
        """Leaves everything as it is, as if the process had died: tests and the simulator start the next one on it."""
        await self._end(lambda part: part.abandon)

    async def _end(self, way: Callable[[_Part], Callable[[], object]]) -> None:
        while self._parts:
            finished = way(self._parts.pop())()
            if asyncio.iscoroutine(finished):
                await finished
        close = getattr(self._ports.offload, "close", None)
        if close is not None:
            close()
        self._serving = False


def _follow(broker: Broker, hub: Hub, limits_of: Callable[[BrokerConfig], Limits]) -> Callable[[Diff], None]:
    """What a change of metadata changes in this node."""

    def on_change(diff: Diff) -> None:
        broker.apply(diff)
        broker.ownership.applied(diff)
        if diff.broker_configured:
            hub.limits = limits_of(broker.config)

    return on_change


def _sentence(config: NodeConfig, error: Exception) -> str:
    if isinstance(error, OSError):
        # The loop's own text repeats the address; a negative number is one of name lookup, whose text is good.
        reason = os.strerror(number) if (number := error.errno or 0) > 0 else error.strerror or str(error)
        if error.filename is not None:
            reason += f": {error.filename}"
        return f"Node {config.node_id} cannot start on {config.listen} with {config.data}: {reason}"
    return str(error)
