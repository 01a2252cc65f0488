"""A directory of Parquet files, one directory for each day, that any reader takes as a table.

There is no log that readers ask, so that what lies there is what they see. Tasks write aside, in `_headrace/staging`.
A batch is decided by its manifest, a record that only the first one can write: it names the files that count. Then they
are moved into place, by whoever comes across the manifest: a file that is not in staging any more has been moved. So an
attempt that failed, a driver that died in between and a paused one that comes back add nothing, and nothing twice.

Between the moves of one batch a reader may see some of its files and not yet the others. When small files are merged,
it may for a moment see rows of one day twice. Delta tables have neither.
"""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.pipeline.files import OUR_NAME, Written
from headrace.pipeline.merging import join, small_files
from headrace.pipeline.outcome import AskedWrongly, PipelineFailed
from headrace.pipeline.place import DELTA_LOG, OURS, Place, Records
from headrace.system import SystemRandom

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileInfo

STAGING = f"{OURS}/staging"
BATCHES = "batches/"
"""Where the manifests are, among the records."""
MANIFESTS_KEPT = 1_000
"""Of the batches of a query: only the last can come again."""


class ParquetTable:
    def __init__(self, place: Place, app_id: str, schema: "pa.Schema", file_bytes: int) -> None:
        self._place = place
        self._app_id = app_id
        self._schema = schema
        self._file_bytes = file_bytes
        self._fs = place.file_system()
        self._records = Records(place)

    def begin(self) -> None:
        from pyarrow.fs import FileType

        if self._fs.get_file_info(self._place.within(DELTA_LOG)).type is FileType.Directory:
            raise AskedWrongly(f"{self._place.url} is a Delta table: give --format delta, or another --to")
        self._fs.create_dir(self._place.path, recursive=True)
        self._finish_merges()

    def has(self, batch_id: int) -> bool:
        manifest = self._records.get(self._key(batch_id))
        if manifest is None:
            return False
        self._publish(batch_id, json.loads(manifest))
        return True

    def below(self, batch_id: int) -> str:
        return f"{STAGING}/{self._app_id}/{batch_id:010d}/"

    def commit(self, batch_id: int, files: Sequence[Written], plan: str = "") -> bool:
        unseen = self._place.unseen(f"{self.below(batch_id)}{one.path}" for one in files)
        if unseen:  # before it is decided: afterwards what is not in staging has been moved
            if self.has(batch_id):
                return False
            raise PipelineFailed(unseen)
        mine = {"batch": batch_id, "plan": plan, "files": [one._asdict() for one in files]}
        content = json.dumps(mine, separators=(",", ":")).encode()
        decided = self._records.put(self._key(batch_id), content)
        if decided == content and self._is_long_over(batch_id):
            self._records.delete(self._key(batch_id))
            return False
        self._publish(batch_id, json.loads(decided))
        self._forget(batch_id - MANIFESTS_KEPT)
        return decided == content

    def last_batch(self) -> int | None:
        keys = self._records.names(f"{BATCHES}{self._app_id}/")
        return int(keys[-1].rpartition("/")[2]) if keys else None

    def plan_of(self, batch_id: int) -> str:
        manifest = self._records.get(self._key(batch_id))
        return "" if manifest is None else str(json.loads(manifest).get("plan", ""))

    def _is_long_over(self, batch_id: int) -> bool:
        """A batch follows when the one before it is in the table. Whoever was paused so long that the manifest of then
        is forgotten finds its place empty, and has to look at those that followed."""
        last = self.last_batch()
        return last is not None and last > batch_id

    def _publish(self, batch_id: int, manifest: dict[str, Any]) -> None:
        below = self.below(batch_id)
        for one in manifest["files"]:
            self._move(f"{below}{one['path']}", one["path"])
        self._remove_directory(below.rstrip("/"))

    def _forget(self, batch_id: int) -> None:
        if batch_id >= 0:
            self._records.delete(self._key(batch_id))

    def _key(self, batch_id: int) -> str:
        return f"{BATCHES}{self._app_id}/{batch_id:010d}"

    # Small files. The merges of a day are numbered: each is decided by a record that only one can write, from what lies
    # there after all merges before it.

    def small_files(self, days: Sequence[str]) -> dict[str, int]:
        return {day: len(self._small(day)) for day in days}

    def merge(self, days: Iterable[str], files_min: int) -> int:
        return sum(self._merge(day, files_min) for day in days)

    def _merge(self, day: str, files_min: int) -> int:
        number = self._finish(day) + 1
        small = self._small(day)
        if len(small) < files_min:
            return 0
        name = f"merged-{number:010d}-{SystemRandom().bits(64):016x}.parquet"
        staged = f"{STAGING}/merges/{day}/{name}"
        try:
            join(self._place, small, staged, self._schema)
        except FileNotFoundError:  # another job has merged them meanwhile
            self._delete(staged)
            return 0
        content = json.dumps({"staged": staged, "into": f"event_date={day}/{name}", "of": small}).encode()
        won = self._records.put(self._merge_key(day, number), content) == content
        if not won:
            self._delete(staged)
        self._finish(day)
        return len(small) if won else 0

    def _small(self, day: str) -> list[str]:
        from pyarrow.fs import FileSelector

        directory = self._place.within(f"event_date={day}")
        found = self._fs.get_file_info(FileSelector(directory, allow_not_found=True))
        ours = [one for one in found if _is_ours(one)]
        on_their_way = self._on_their_way() if ours else set()
        files = [(one.size, f"event_date={day}/{one.base_name}") for one in ours if one.base_name not in on_their_way]
        return small_files(files, self._file_bytes)

    def _on_their_way(self) -> set[str]:
        """Names of files in staging. An object store has no rename: who dies between the copy and the deletion moves
        the file once more when it is back, and its rows would come twice if they were in a merge by then."""
        from pyarrow.fs import FileSelector

        if self._place.is_local:
            return set()
        staging = FileSelector(self._place.within(STAGING), allow_not_found=True, recursive=True)
        return {one.base_name for one in self._fs.get_file_info(staging) if one.is_file}

    def _finish_merges(self) -> None:
        for day in sorted({key.split("/")[1] for key in self._records.names("merges/")}):
            self._finish(day)

    def _finish(self, day: str) -> int:
        """The number of the last merge, which is done then; 0 if there was none."""
        keys, content = self._last_merge(day)
        if content is None:
            return 0
        merge = json.loads(content)
        self._move(merge["staged"], merge["into"])
        for path in merge["of"]:
            self._delete(path)
        self._records.delete(*keys[:-1])
        return int(keys[-1].rpartition("/")[2])

    def _last_merge(self, day: str) -> tuple[list[str], bytes | None]:
        """The keys of all that are kept, and the content of the last; read again where another job forgets it."""
        while keys := self._records.names(f"merges/{day}/"):
            content = self._records.get(keys[-1])
            if content is not None:
                return keys, content
        return [], None

    @staticmethod
    def _merge_key(day: str, number: int) -> str:
        return f"merges/{day}/{number:010d}"

    # Files.

    def _move(self, source: str, target: str) -> None:
        """Nothing happens if somebody has done it."""
        from pyarrow.fs import FileType

        if self._fs.get_file_info(self._place.within(source)).type is not FileType.File:
            return
        where = self._place.within(target)
        self._fs.create_dir(where.rpartition("/")[0], recursive=True)
        try:
            self._fs.move(self._place.within(source), where)
        except OSError:  # FileNotFoundError only where the file system is local
            if self._fs.get_file_info(self._place.within(source)).type is FileType.File:
                raise

    def _delete(self, path: str) -> None:
        try:
            self._fs.delete_file(self._place.within(path))
        except FileNotFoundError:
            return

    def _remove_directory(self, path: str) -> None:
        try:
            self._fs.delete_dir(self._place.within(path))
        except FileNotFoundError:
            return


def _is_ours(file: "FileInfo") -> bool:
    """Others may put files beside them, which are not ours to replace."""
    return bool(file.is_file) and file.size is not None and OUR_NAME.fullmatch(file.base_name) is not None
