"""Where a resource is decided: a partition at its leader, any other name at the controller."""

from collections.abc import Iterable

from headrace.client.cluster import Cluster, parse_bootstrap
from headrace.client.errors import NotReachable
from headrace.client.outside import Outside
from headrace.model import TopicPartition
from headrace.net.peer import Peer, PeerLost
from headrace.net.transport import Address
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.own import OwnLeader

CONNECT_MS_MAX = 3_000
SILENT_CONNECT_MS_MAX = 1_000
"""A broker that has fallen silent is not waited for so long: meanwhile another may have become the leader."""
ANSWER_MS_MAX = 3_000
PARTITION_DIGITS_MAX = 10


def partition_named(resource: str) -> TopicPartition | None:
    """What `topic-0` names, if there is such a partition. The last hyphen splits."""
    topic, hyphen, index = resource.rpartition("-")
    if not hyphen or not topic or not index.isascii() or not index.isdigit() or len(index) > PARTITION_DIGITS_MAX:
        return None
    partition = TopicPartition(topic, int(index))
    return partition if str(partition) == resource else None


class Places:
    """What a claimer knows of the cluster, and where brokers have sent it since.

    Each time it asks another broker than before: one may be paused, or cut off and sure of what was true long ago.
    """

    def __init__(self, bootstrap: str, client_id: str, outside: Outside, resources: Iterable[str]) -> None:
        self._cluster = Cluster(bootstrap, client_id, outside, creates_topics=False)
        self._client_id = client_id
        self._partitions = {resource: partition_named(resource) for resource in resources}
        topics = {partition.topic for partition in self._partitions.values() if partition is not None}
        named = [MetadataRequestTopic(name=topic) for topic in sorted(topics)]
        self._question = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        self._seeds = parse_bootstrap(bootstrap)
        self._turn = outside.random.bits(16)
        self._hints: dict[str, tuple[int, Address]] = {}
        self._silent: Address | None = None
        self._answer: MetadataResponse | None = None
        self._kept: tuple[Address, Peer] | None = None

    async def learn(self, timeout_ms: int, *, keep: bool) -> None:
        """Asks the cluster for the first time. KafkaError when nobody answers in that time.

        `keep`: the connection is not closed, see `hand_over`.
        """
        with self._cluster.tries(timeout_ms) as tries:
            while True:
                try:
                    asking = self.learn_once(keep=keep)
                    await tries.attempt(asking, f"no broker of bootstrap {self._cluster.bootstrap} answers")
                    return
                except NotReachable as error:
                    await tries.again(error)

    async def learn_once(self, *, keep: bool = False) -> None:
        """What brokers hinted at is forgotten then. NotReachable when none answers."""
        known = list(dict.fromkeys([*self._cluster.brokers.values(), *self._seeds]))
        self._turn += 1
        turn = self._turn % len(known)
        reasons = []
        for address in sorted([*known[turn:], *known[:turn]], key=lambda address: address == self._silent):
            try:
                self._answer = await self._ask(address, keep)
                self._cluster.learn(self._answer)
                self._hints.clear()
                return
            except (PeerLost, TimeoutError, ProtocolError) as error:
                reasons.append(str(error) or f"nothing came in {ANSWER_MS_MAX} ms")
        raise NotReachable(f"no broker of bootstrap {self._cluster.bootstrap} answers: {'; '.join(reasons)}")

    def fell_silent(self, address: Address) -> None:
        """It is asked after all others, until it answers."""
        self._silent = address

    def hint(self, resource: str, leader: OwnLeader | None) -> bool:
        """A broker that does not decide about it names the one that does. Whether that is news."""
        before = self.of(resource)
        if leader is not None and leader.id >= 0 and leader.host:
            self._hints[resource] = leader.id, Address(leader.host, leader.port)
        return self.of(resource) not in (None, before)

    def of(self, resource: str) -> int | None:
        """The number of that broker; None while there is none."""
        if resource in self._hints:
            return self._hints[resource][0]
        partition = self.partition(resource)
        if partition is not None:
            leader = self._cluster.leader(partition)
            return None if leader is None else leader.node_id
        return self._cluster.controller_id if self._cluster.controller_id >= 0 else None

    def partition(self, resource: str) -> TopicPartition | None:
        """None for a name that is no partition."""
        partition = self._partitions[resource]
        topic = None if partition is None else self._cluster.topics.get(partition.topic)
        return partition if topic is not None and partition and partition.partition in topic.leaders else None

    async def connect(self, node_id: int) -> tuple[Peer, Address]:
        """A connection to that broker. PeerLost."""
        hinted = next((address for id_, address in self._hints.values() if id_ == node_id), None)
        address = hinted or self._cluster.brokers.get(node_id)
        if address is None:
            raise PeerLost(f"broker {node_id} is not in the metadata")
        return await self._connect(address), address

    def hand_over(self, cluster: Cluster) -> None:
        """The clients of whoever was granted something need not ask again for what is known. Nor need they connect to
        the broker that said so: the connection was made before anything was claimed, so what has been granted there
        since was shown later, and it is severed with it."""
        if self._answer is not None:
            cluster.inherit(self._answer)
        if self._kept is not None:
            cluster.adopt(*self._kept)
            self._kept = None

    async def close(self) -> None:
        if self._kept is not None:
            self._kept[1].close()
        await self._cluster.close()

    async def _connect(self, address: Address) -> Peer:
        network, hub = self._cluster.outside.network, self._cluster.hub
        patience_ms = SILENT_CONNECT_MS_MAX if address == self._silent else CONNECT_MS_MAX
        peer = await Peer.connect(network, hub, *address, self._client_id, patience_ms)
        if address == self._silent:
            self._silent = None
        return peer

    async def _ask(self, address: Address, keep: bool) -> MetadataResponse:
        peer = await self._connect(address)
        is_kept = False
        try:
            answer = await peer.request(self._question, MetadataResponse, timeout_ms=ANSWER_MS_MAX)
            if keep:
                self._kept, is_kept = (address, peer), True
            return answer
        finally:
            if not is_kept:
                peer.close()
