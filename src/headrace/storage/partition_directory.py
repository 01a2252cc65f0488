"""The directory of one partition, when it comes into being."""

from headrace.storage.checkpoints import format_partition_metadata
from headrace.storage.files import Files, parent_of
from headrace.storage.unsynced import Unsynced

METADATA_NAME = "partition.metadata"


def make(files: Files, directory: str, topic_id: bytes, unsynced: Unsynced) -> None:
    """The first record waits for no disk: names and contents become durable with the first flush."""
    metadata_path = f"{directory}/{METADATA_NAME}"
    if files.exists(metadata_path):
        return
    files.make_directory(directory)
    files.replace(metadata_path, format_partition_metadata(topic_id).encode(), durable=False)
    unsynced.files.append(files.open(metadata_path))
    unsynced.directories |= {directory, parent_of(directory)}
