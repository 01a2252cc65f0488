"""What the data directories of a node know of its last run, and whether they have lost anything since."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.storage.checkpoints import CorruptCheckpoint, uuid_text
from headrace.storage.properties import MetaProperties

if TYPE_CHECKING:
    from headrace.storage.log_dir import LogDir  # which costs much more to import than all that is here

LEASE = "headrace.lease"
INCARNATION = "headrace.incarnation"
BROKER_EPOCH = "headrace.broker.epoch"
INTACT_SINCE = "headrace.intact.since"
BOOT_ID = "headrace.boot.id"
MOUNT_ID = "headrace.mount.id"
DIRECTORIES = "headrace.directories"


@dataclass(frozen=True, slots=True)
class LastRun:
    lease_id: int = 0
    incarnation: str = ""
    broker_epoch: int = -1
    """The newest registration that every directory has seen."""
    intact_since: int = 0
    """The oldest registration since which no directory lost anything; 0: something was lost, or nobody knows."""


class Identity:
    """Of directories that are locked and belong to this node: each has its meta.properties."""

    def __init__(self, directories: Sequence["LogDir"], boot_id: str, mount_id_of: Callable[[str], str]) -> None:
        self._directories = directories
        self._boot_id = boot_id
        self._mount_ids = {directory.path: mount_id_of(directory.path) for directory in directories}

    def last_run(self) -> LastRun:
        """Stores its verdict before anything is recovered: a second start must not take a loss for intact."""
        runs = [(directory, meta, _run_in(meta)) for directory, meta in self._metas() if INCARNATION in meta.own]
        if not runs:
            return LastRun()
        newest = max((run for _, _, run in runs), key=lambda run: run.broker_epoch)
        is_intact = (
            all(self._survived(directory, meta) and run.intact_since for directory, meta, run in runs)
            and len({run.incarnation for _, _, run in runs}) == 1
            and self._is_complete([meta for _, meta, _ in runs])
        )
        last = replace(
            newest,
            broker_epoch=min(run.broker_epoch for _, _, run in runs),
            intact_since=max(run.intact_since for _, _, run in runs) if is_intact else 0,
        )
        self.remember(last)
        return last

    def remember(self, run: LastRun) -> None:
        """Written before it returns, where it is not there already. Raises OSError."""
        known = ",".join(sorted(uuid_text(meta.directory_id) for _, meta in self._metas()))
        for directory, meta in self._metas():
            own = {
                **meta.own,
                LEASE: str(run.lease_id),
                INCARNATION: run.incarnation,
                BROKER_EPOCH: str(run.broker_epoch),
                INTACT_SINCE: str(run.intact_since),
                BOOT_ID: self._boot_id,
                MOUNT_ID: self._mount_ids[directory.path],
                DIRECTORIES: known,
            }
            if own != meta.own:
                directory.write_meta(replace(meta, own=own))

    def _metas(self) -> list[tuple["LogDir", MetaProperties]]:
        metas = [(directory, directory.read_meta()) for directory in self._directories]
        return [(directory, meta) for directory, meta in metas if meta is not None]

    def _survived(self, directory: "LogDir", meta: MetaProperties) -> bool:
        """Whether all that was written before is there: it was synced, or the page cache lives on."""
        mount_id = self._mount_ids[directory.path]
        return directory.was_clean or (meta.own.get(BOOT_ID), meta.own.get(MOUNT_ID)) == (self._boot_id, mount_id)

    def _is_complete(self, metas: Sequence[MetaProperties]) -> bool:
        present = {uuid_text(meta.directory_id) for meta in metas}
        return all(present.issuperset(meta.own.get(DIRECTORIES, "").split(",")) for meta in metas)


def _run_in(meta: MetaProperties) -> LastRun:
    try:
        return LastRun(
            int(meta.own[LEASE]), meta.own[INCARNATION], int(meta.own[BROKER_EPOCH]), int(meta.own[INTACT_SINCE])
        )
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"meta.properties has no readable {error}.") from error
