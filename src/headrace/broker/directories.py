"""The data directories of a node when it starts: whose they are, and space kept aside in them."""

import logging
from collections.abc import Sequence

from headrace.runtime import Random
from headrace.storage.log_dir import LogDir
from headrace.storage.properties import MetaProperties

log = logging.getLogger(__name__)


def claim(directories: Sequence[LogDir], cluster_id: str, node_id: int, random: Random) -> str | None:
    """New ones become this node's. One sentence when one belongs to somebody else."""
    for directory in directories:
        meta = directory.read_meta()
        if meta is None:
            directory_id = random.bits(128).to_bytes(16, "big")
            directory.write_meta(MetaProperties(cluster_id, node_id, directory_id))
        elif meta.cluster_id != cluster_id:
            return (
                f"{directory.path} belongs to cluster {meta.cluster_id}, but the metadata store to {cluster_id}; "
                "give the directory that belongs to this store, or an empty one"
            )
        elif meta.node_id != node_id:
            return (
                f"{directory.path} belongs to node {meta.node_id}, not to node {node_id}; "
                "give each node a directory of its own"
            )
    return None


def keep_reserves(directories: Sequence[LogDir], size: int) -> None:
    for directory in directories:
        try:
            directory.keep_reserve(size)
        except OSError as error:
            log.warning("%s has no reserve of %d bytes for a full disk: %s", directory.path, size, error)
