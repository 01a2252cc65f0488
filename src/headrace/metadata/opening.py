"""Which metadata store a URL means."""

from pathlib import Path

from headrace.metadata.sqlite import LANE, SqliteStore
from headrace.metadata.store import MetadataStoreError, MetaStore
from headrace.runtime import Clock, Offload

_ETCD = "etcd://"
_SQLITE = "sqlite:"
_ETCD_PORT = 2379


async def open_store(url: str, offload: Offload, clock: Clock, *, may_create: bool = True) -> MetaStore:
    """For `sqlite:FILE` and `etcd://HOST:PORT,HOST:PORT`. Raises MetadataStoreError with one sentence."""
    if url.startswith(_SQLITE) and url != _SQLITE:
        path = Path(url.removeprefix(_SQLITE))
        if not may_create and not await offload.run(LANE, path.exists):
            raise MetadataStoreError(f"{path} does not exist")
        return await SqliteStore.open(path, offload, clock)
    if url.startswith(_ETCD):
        addresses = etcd_addresses(url)
        try:
            # Only those who use etcd need grpc, which is large and comes with the extra "etcd".
            from headrace.metadata.etcd import EtcdStore
        except ImportError as error:
            raise MetadataStoreError(f"Metadata store {url} needs grpcio: install headrace[etcd]") from error
        return await EtcdStore.open(addresses, clock)
    raise MetadataStoreError(f"Cannot use {url!r} as metadata store: give sqlite:FILE or etcd://HOST:PORT,HOST:PORT")


def etcd_addresses(url: str) -> list[str]:
    addresses = []
    for part in url.removeprefix(_ETCD).rstrip("/").split(","):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(_ETCD_PORT)
        if not host or "/" in part or not port.isdecimal() or not 0 < int(port) < 65536:
            raise MetadataStoreError(f"Cannot use {url!r} as metadata store: {part!r} is not HOST:PORT")
        addresses.append(f"{host}:{port}")
    return addresses
