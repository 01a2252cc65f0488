"""What a node knows of the cluster: topics, partitions, settings, brokers. One owner, changed by `apply` alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from headrace.config import BROKER_SETTINGS, BrokerConfig, TopicConfig, TopicConfigs, valid_only
from headrace.core.coverage import CoverageGone, CoveragePut, StoredCoverage, remember
from headrace.core.tier_pointer import PointerGone, PointerPut, Pointers, TierTopicGone, TierTopicPut, point
from headrace.settings import InvalidSetting

NO_LEADER = -1


def unified(topic: str) -> str:
    """What names of topics have in common that differ in '.' and '_' only."""
    return topic.replace(".", "_")


class IsrMember(NamedTuple):
    """A replica in sync, and the registration of its broker for which that was found."""

    broker_id: int
    broker_epoch: int


class PartitionRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="v", tag=1):
    """A partition as the store holds it. `partition_epoch` grows with every change of it."""

    replicas: tuple[int, ...]
    isr: tuple[IsrMember, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False
    """Elected without a member of its ISR: records may be gone."""

    @property
    def isr_ids(self) -> list[int]:
        return [member.broker_id for member in self.isr]


class BrokerRecord(msgspec.Struct, frozen=True, tag_field="v", tag=1):
    """A node's registration as the store holds it. The revision that created it is the broker's epoch."""

    incarnation: str
    host: str
    port: int
    rack: str | None = None
    origin: str = ""
    """The machine and the data directory that it runs on."""
    log_dirs: tuple[str, ...] = ()
    state: Literal["up", "shutting_down"] = "up"
    intact_since: int = 0
    """The oldest broker epoch since which its directories lost nothing; 0 stands for this registration's own."""
    last_epoch: int = -1
    """The broker epoch that its data directory had seen before this registration."""


class OwnedRecord(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="v", tag=1):
    """A generation that outlives its owner, as the store holds it."""

    generation: int
    principal: str
    holder: str
    """Who may resume it: what a claimer calls itself, or the client.id of one that claimed by it."""
    retain_ms: int
    """How long after the loss it counts."""
    topic_id: str = ""
    """In hexadecimal; empty for a name. A key of another topic counts as absent."""
    exclusive: int = 0
    """Bits: while it counts nobody but the owner may produce (1), or fetch (2)."""

    def open_to_all(self) -> "OwnedRecord":
        return msgspec.structs.replace(self, exclusive=0)


class Owned(NamedTuple):
    record: OwnedRecord
    rev: int


class RegisteredBroker(NamedTuple):
    """A registration as the image holds it: `intact_since` is never 0 when it was made by `registered`."""

    id: int
    epoch: int
    host: str
    port: int
    rack: str | None
    is_shutting_down: bool = False
    intact_since: int = 0
    last_epoch: int = -1
    incarnation: str = ""
    origin: str = ""
    mod_rev: int = 0
    """Revision of its key; a change that is not newer is none."""


def registered(broker_id: int, record: BrokerRecord, create_rev: int, mod_rev: int) -> RegisteredBroker:
    return RegisteredBroker(
        id=broker_id,
        epoch=create_rev,
        host=record.host,
        port=record.port,
        rack=record.rack,
        is_shutting_down=record.state == "shutting_down",
        intact_since=record.intact_since or create_rev,
        last_epoch=record.last_epoch,
        incarnation=record.incarnation,
        origin=record.origin,
        mod_rev=mod_rev,
    )


class Controller(NamedTuple):
    id: int
    epoch: int
    """Create revision of its key."""


@dataclass(slots=True, eq=False)
class Topic:
    """Identity is the id: a topic that was deleted and created again is another one."""

    name: str
    id: bytes
    partitions: list[PartitionRecord]
    """By index. Records are replaced, never changed."""
    mod_rev: int
    partition_revs: list[int]
    overrides: Mapping[str, str]
    overrides_rev: int
    """Revision of the overrides' key; 0 when it does not exist."""
    config: TopicConfig


# Changes, as read from the store. `rev` is the revision that wrote them.


class ClusterNamed(NamedTuple):
    cluster_id: str


class TopicPut(NamedTuple):
    """A topic appears with all its partitions, or grows: partitions from `first_index` on are new.

    Overrides count only when it appears.
    """

    name: str
    id: bytes
    partitions: Sequence[PartitionRecord]
    partition_revs: Sequence[int]
    rev: int
    first_index: int = 0
    overrides: Mapping[str, str] = MappingProxyType({})
    overrides_rev: int = 0


class TopicGone(NamedTuple):
    name: str
    id: bytes


class PartitionPut(NamedTuple):
    topic_id: bytes
    partition: int
    record: PartitionRecord
    rev: int


class TopicOverrides(NamedTuple):
    """Empty overrides with revision 0: the key is gone."""

    name: str
    overrides: Mapping[str, str]
    rev: int


class BrokerOverrides(NamedTuple):
    """Settings of one node, or of all of them (`broker_id` None)."""

    broker_id: int | None
    overrides: Mapping[str, str]
    rev: int


class BrokerPut(NamedTuple):
    broker: RegisteredBroker


class BrokerGone(NamedTuple):
    broker_id: int


class OfflineReplicas(NamedTuple):
    """All replicas of one node whose directories it has announced offline; an empty set takes it back."""

    broker_id: int
    replicas: frozenset[tuple[bytes, int]]
    """Topic ids and indexes."""


class ControllerIs(NamedTuple):
    """None: nobody is."""

    controller: Controller | None


class OwnedPut(NamedTuple):
    """What is remembered of the owner of a resource in a group."""

    group: str
    resource: str
    owned: Owned


class OwnedGone(NamedTuple):
    group: str
    resource: str


Change = (
    ClusterNamed
    | TopicPut
    | TopicGone
    | PartitionPut
    | TopicOverrides
    | BrokerOverrides
    | BrokerPut
    | BrokerGone
    | OfflineReplicas
    | ControllerIs
    | OwnedPut
    | OwnedGone
    | CoveragePut
    | CoverageGone
    | PointerPut
    | PointerGone
    | TierTopicPut
    | TierTopicGone
)


@dataclass(slots=True)
class Diff:
    """What a batch of changes did to the image, for those who act on it. In the order of the changes."""

    topics_created: list[Topic] = field(default_factory=list)
    topics_deleted: list[Topic] = field(default_factory=list)
    partitions_created: list[tuple[Topic, int]] = field(default_factory=list)
    """Added to a topic that was there before; those of a created topic are not listed."""
    partitions_changed: list[tuple[Topic, int]] = field(default_factory=list)
    topics_configured: list[Topic] = field(default_factory=list)
    """Topics whose effective settings may have changed."""
    broker_configured: bool = False
    """This node's effective settings changed."""
    brokers_changed: set[int] = field(default_factory=set)
    """Registered, gone, or registered with other values."""
    offline_changed: set[int] = field(default_factory=set)
    """Nodes whose announced offline replicas changed."""
    controller_changed: bool = False
    owned_changed: list[tuple[str, str]] = field(default_factory=list)
    """Groups and resources of which something else is remembered now."""
    tier_changed: list[tuple[bytes, int]] = field(default_factory=list)
    """Topic ids and indexes of partitions whose tier has another manifest now, or none. Topics may be gone."""


class ClusterImage:
    def __init__(self, node_id: int, settings: Mapping[str, str]) -> None:
        """`settings` is what this node was started with. Raises InvalidSetting."""
        self.node_id = node_id
        self.cluster_id = ""
        self.settings = settings
        self.broker_config = BrokerConfig.parse(settings)
        self.broker_overrides: dict[int | None, BrokerOverrides] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.brokers: dict[int, RegisteredBroker] = {}
        self.offline: dict[int, frozenset[tuple[bytes, int]]] = {}
        self.controller: Controller | None = None
        self.owned: dict[str, dict[str, Owned]] = {}
        """By resource and group."""
        self.owned_count = 0
        self.coverage: dict[tuple[bytes, int], StoredCoverage] = {}
        """Of tiered partitions, by topic id and index: what their replicas have on their own disks."""
        self.tier: Pointers = {}
        """What of each partition is in the tier. Also of topics that are gone, until their objects are."""
        self.tier_topics: dict[bytes, int] = {}
        """Ids of topics that may have objects, and the revisions of their keys."""
        self.rev = 0
        """The last revision of the store that is in here."""
        self.partitions_count = 0
        self._configs = TopicConfigs(self.broker_config)
        self._alike: dict[str, list[str]] = {}

    def partition(self, name: str, index: int) -> PartitionRecord | None:
        topic = self.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def leader_of(self, record: PartitionRecord) -> int:
        """The leader when it is a registered node, else NO_LEADER."""
        return record.leader if record.leader in self.brokers else NO_LEADER

    def is_reachable(self, broker_id: int, topic_id: bytes, index: int) -> bool:
        """Registered, and the replica's directory works. It may be shutting down."""
        return broker_id in self.brokers and (topic_id, index) not in self.offline.get(broker_id, ())

    def is_live(self, broker_id: int, topic_id: bytes, index: int) -> bool:
        """Whether this replica may be elected or join the ISR."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.is_shutting_down:
            return False
        return broker_id not in self.offline or (topic_id, index) not in self.offline[broker_id]

    def colliding_with(self, name: str) -> str | None:
        """A topic of another name that metrics, where '.' becomes '_', could not tell from this one."""
        return next((other for other in self._alike.get(unified(name), ()) if other != name), None)

    def led_by(self, broker_id: int) -> Iterator[tuple[Topic, int]]:
        for topic in self.topics.values():
            for index, record in enumerate(topic.partitions):
                if record.leader == broker_id:
                    yield topic, index

    def overrides_of(self, broker_id: int | None) -> Mapping[str, str]:
        stored = self.broker_overrides.get(broker_id)
        return {} if stored is None else stored.overrides

    def apply(self, changes: Iterable[Change], rev: int = 0) -> Diff:
        """Changes that are not newer than what is known do nothing. `rev` is the store's, when they make it whole."""
        diff = Diff()
        self.rev = max(self.rev, rev)
        for change in changes:
            match change:
                case TopicPut():
                    self._put_topic(change, diff)
                case TopicGone():
                    self._remove_topic(change, diff)
                case PartitionPut():
                    self._put_partition(change, diff)
                case TopicOverrides():
                    self._override_topic(change, diff)
                case BrokerOverrides():
                    self._override_broker(change, diff)
                case ClusterNamed(cluster_id):
                    self.cluster_id = cluster_id
                case BrokerPut() | BrokerGone() | OfflineReplicas() | ControllerIs():
                    self._change_nodes(change, diff)
                case OwnedPut() | OwnedGone():
                    self._change_owned(change, diff)
                case CoveragePut() | CoverageGone():
                    remember(self.coverage, change)  # elections look at it when they are held: nobody acts on it
                case PointerPut() | PointerGone() | TierTopicPut() | TierTopicGone():
                    point(self.tier, self.tier_topics, change, diff.tier_changed)
        return diff

    def _change_nodes(self, change: BrokerPut | BrokerGone | OfflineReplicas | ControllerIs, diff: Diff) -> None:
        match change:
            case BrokerPut(broker):
                known = self.brokers.get(broker.id)
                if known is None or (known != broker and broker.mod_rev >= known.mod_rev):
                    self.brokers[broker.id] = broker
                    diff.brokers_changed.add(broker.id)
            case BrokerGone(broker_id):
                if self.brokers.pop(broker_id, None) is not None:
                    diff.brokers_changed.add(broker_id)
            case OfflineReplicas(broker_id, replicas):
                if self.offline.get(broker_id, frozenset()) == replicas:
                    return
                diff.offline_changed.add(broker_id)
                self.offline[broker_id] = replicas
                if not replicas:
                    del self.offline[broker_id]
            case ControllerIs(controller):
                diff.controller_changed |= controller != self.controller
                self.controller = controller

    def owned_of(self, group: str, resource: str) -> Owned | None:
        return self.owned.get(resource, {}).get(group)

    def _change_owned(self, change: OwnedPut | OwnedGone, diff: Diff) -> None:
        group, resource = change.group, change.resource
        known = self.owned_of(group, resource)
        if isinstance(change, OwnedPut):
            if known is not None and known.rev >= change.owned.rev:
                return
            self.owned.setdefault(resource, {})[group] = change.owned
            self.owned_count += known is None
        else:
            if known is None:
                return
            groups = self.owned[resource]
            del groups[group]
            if not groups:
                del self.owned[resource]
            self.owned_count -= 1
        diff.owned_changed.append((group, resource))

    def _put_topic(self, change: TopicPut, diff: Diff) -> None:
        known = self.topics.get(change.name)
        if known is not None and known.id == change.id:
            if change.rev <= known.mod_rev:
                return
            assert change.first_index == len(known.partitions)
            known.partitions.extend(change.partitions)
            known.partition_revs.extend(change.partition_revs)
            known.mod_rev = change.rev
            self.partitions_count += len(change.partitions)
            diff.partitions_created += [(known, index) for index in range(change.first_index, len(known.partitions))]
            return
        assert change.first_index == 0
        if known is not None:
            self._remove_topic(TopicGone(known.name, known.id), diff)
        created = Topic(
            name=change.name,
            id=change.id,
            partitions=list(change.partitions),
            mod_rev=change.rev,
            partition_revs=list(change.partition_revs),
            overrides=change.overrides,
            overrides_rev=change.overrides_rev,
            config=self._configs.get(change.overrides),
        )
        self.topics[change.name] = self.topics_by_id[change.id] = created
        self.partitions_count += len(created.partitions)
        if "_" in unified(created.name):
            self._alike.setdefault(unified(created.name), []).append(created.name)
        diff.topics_created.append(created)

    def _remove_topic(self, change: TopicGone, diff: Diff) -> None:
        known = self.topics_by_id.pop(change.id, None)
        if known is not None:
            del self.topics[known.name]
            self.partitions_count -= len(known.partitions)
            if "_" in unified(known.name):
                self._alike[unified(known.name)].remove(known.name)
                if not self._alike[unified(known.name)]:
                    del self._alike[unified(known.name)]
            diff.topics_deleted.append(known)

    def _put_partition(self, change: PartitionPut, diff: Diff) -> None:
        topic = self.topics_by_id.get(change.topic_id)
        if topic is None or change.partition >= len(topic.partitions):
            return
        # The highest partition epoch wins: replies and watch events arrive in either order.
        if change.rev <= topic.partition_revs[change.partition]:
            return
        if change.record.partition_epoch < topic.partitions[change.partition].partition_epoch:
            return
        topic.partitions[change.partition] = change.record
        topic.partition_revs[change.partition] = change.rev
        diff.partitions_changed.append((topic, change.partition))

    def _override_topic(self, change: TopicOverrides, diff: Diff) -> None:
        topic = self.topics.get(change.name)
        if topic is None or (change.rev <= topic.overrides_rev and (change.rev or not topic.overrides_rev)):
            return
        topic.overrides, topic.overrides_rev = change.overrides, change.rev
        topic.config = self._configs.get(change.overrides)
        diff.topics_configured.append(topic)

    def _override_broker(self, change: BrokerOverrides, diff: Diff) -> None:
        known = self.broker_overrides.get(change.broker_id)
        if known is not None and change.rev and change.rev <= known.rev:
            return
        self.broker_overrides[change.broker_id] = change
        config = self.broker_config_with({})
        if config == self.broker_config:
            return
        self.broker_config = config
        self._configs = TopicConfigs(config)
        for topic in self.topics.values():
            topic.config = self._configs.get(topic.overrides)
        diff.topics_configured = list(self.topics.values())
        diff.broker_configured = True

    def broker_config_with(self, replaced: Mapping[int | None, Mapping[str, str]]) -> BrokerConfig:
        """This node's settings if these layers were replaced. Stored settings that cannot be read count as not set."""
        layers = [replaced.get(layer, self.overrides_of(layer)) for layer in (None, self.node_id)]
        readable = [valid_only(BROKER_SETTINGS, layer.items()) for layer in layers]
        try:
            return BrokerConfig.parse(self.settings, *readable)
        except InvalidSetting:
            return BrokerConfig.parse(self.settings)  # each is valid, but not together: another version wrote them
