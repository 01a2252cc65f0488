"""What a node is told, and what it is handed from outside."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headrace.core.acl import Allowed, allowed
from headrace.metadata.store import MetaStore
from headrace.net.transport import LoopNetwork, Network
from headrace.runtime import Apart, BesideLoop, Clock, Offload, Random
from headrace.storage.checkpoints import CorruptCheckpoint
from headrace.storage.files import Files
from headrace.storage.os_files import OsFiles
from headrace.storage.properties import parse_properties
from headrace.system import SystemClock, SystemRandom, ThreadOffload, descriptors_max, mount_id_of, origin_of
from headrace.tier.store import ObjectStore

OPEN_FILES_MAX = 2_000
"""Data files held open at one time; the rest is opened again when it is used."""


class NotStarted(Exception):
    """The node cannot run. One sentence with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    node_id: int
    listen: str
    """HOST:PORT, where port 0 takes a free one."""
    data: str
    """One directory, or several with commas between them."""
    metadata: str
    """sqlite:FILE or etcd://HOST:PORT,HOST:PORT"""
    metrics: str = "127.0.0.1:0"
    advertise: str = ""
    """HOST:PORT that clients and other nodes are told; port 0 is the bound one. Without it: what `listen` says."""
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def parse_settings_file(text: str) -> dict[str, str]:
    """Settings as in Kafka's own files, one key=value on each line. ValueError with one sentence."""
    try:
        return parse_properties(text)
    except CorruptCheckpoint as error:
        raise ValueError(str(error)) from error


@dataclass(slots=True, kw_only=True)
class Ports:
    """What a node is handed from outside. The simulator has its own."""

    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    offload: Offload = field(default_factory=ThreadOffload)
    make_apart: Callable[[], Apart] = BesideLoop
    """For work that would hold up the loop even from another thread."""
    descriptors_max: int = field(default_factory=descriptors_max)
    files: Files = field(default_factory=lambda: OsFiles(open_files_max(descriptors_max())))
    network: Network = field(default_factory=LoopNetwork)
    is_allowed: Allowed = allowed
    origin_of: Callable[[str], str] = origin_of
    """Which directory of which machine a path is."""
    mount_id_of: Callable[[str], str] = mount_id_of
    open_store: Callable[[str], Awaitable[MetaStore]] | None = None
    """From NodeConfig.metadata to the store; None opens what the text names."""
    open_object_store: Callable[[str], ObjectStore] | None = None
    """From remote.storage.url to the tier's store; None opens what the URL names."""


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise NotStarted(f"{address!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


def open_files_max(descriptors: int) -> int:
    return min(OPEN_FILES_MAX, descriptors // 4)
