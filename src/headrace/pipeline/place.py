"""Where a table lies: as pyarrow, deltalake and our own object stores know it."""

from collections.abc import Callable, Coroutine, Iterable
from pathlib import PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.pipeline.outcome import AskedWrongly
from headrace.spark.door import door
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.opening import open_for_tools
from headrace.tier.store import ObjectExists, ObjectMissing, ObjectStore, Refused, StoreUnavailable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

T = TypeVar("T")

OURS = "_headrace"
"""Beside the table's files. Readers of Parquet and of Delta tables leave out what begins so."""

DELTA_LOG = "_delta_log"

_HOW = "give a directory, file:///DIRECTORY or s3://BUCKET/PREFIX?endpoint=URL&region=NAME"


class Place(NamedTuple):
    """Handed to tasks."""

    url: str
    path: str
    """Within its file system, without a slash at the end."""
    is_local: bool
    options: tuple[tuple[str, str], ...] = ()

    def file_system(self) -> "FileSystem":
        from pyarrow import fs

        if self.is_local:
            return fs.LocalFileSystem()
        options = dict(self.options)
        endpoint = urlsplit(options.get("endpoint", ""))
        return fs.S3FileSystem(
            region=options.get("region") or None,
            endpoint_override=endpoint.netloc or None,
            scheme=endpoint.scheme or "https",
            allow_bucket_creation=False,
        )

    def within(self, name: str) -> str:
        return f"{self.path}/{name}"

    def unseen(self, names: Iterable[str]) -> str:
        """A sentence if not all files are there that tasks have written; empty if they are."""
        paths = [self.within(name) for name in names]
        missing = [one.path for one in self.file_system().get_file_info(paths) if not one.is_file]
        if not missing:
            return ""
        why = (
            "a local --to has to be one directory that the driver and all workers share" if self.is_local else self.url
        )
        return f"{len(missing)} of {len(paths)} files that tasks wrote are not there, {missing[0]} for one: {why}"

    def refuse_foreign(self) -> None:
        """AskedWrongly where somebody else keeps files: who looks after a table may take them for its own."""
        from pyarrow.fs import FileSelector

        found = self.file_system().get_file_info(FileSelector(self.path, allow_not_found=True))
        names = sorted(one.base_name for one in found)
        seen = [name for name in names if not name.startswith(("_", "."))]
        if seen and OURS not in names and DELTA_LOG not in names:
            raise AskedWrongly(f"{self.url} has files that no table of ours has, {seen[0]} for one: give another --to")

    @property
    def delta_uri(self) -> str:
        """The same for all ways to write one place, which are to count as one."""
        return self.path if self.is_local else f"s3://{self.path}"

    @property
    def delta_options(self) -> dict[str, str]:
        options = dict(self.options)
        told = {"AWS_REGION": options.get("region"), "AWS_ENDPOINT_URL": options.get("endpoint")}
        if (options.get("endpoint") or "").startswith("http:"):
            told["AWS_ALLOW_HTTP"] = "true"
        return {name: value for name, value in told.items() if value}

    @property
    def checkpoint(self) -> str | None:
        """Where Spark may keep its checkpoint unless told; None where it needs a jar to write."""
        return self.within(f"{OURS}/checkpoint") if self.is_local else None


def place_of(url: str, working_directory: str) -> Place:
    """AskedWrongly, with one sentence."""
    parts = urlsplit(url)
    if not url:
        raise AskedWrongly(f"--to is empty: {_HOW}")
    if parts.scheme == "s3" and parts.netloc:
        options = tuple(sorted(parse_qsl(parts.query)))
        if parts.username is not None:
            raise AskedWrongly("credentials do not belong in --to: give them in the environment")
        if unknown := [name for name, _ in options if name not in ("endpoint", "region")]:
            raise AskedWrongly(f"--to has an option {unknown[0]!r} that s3 does not know: {_HOW}")
        return Place(url, f"{parts.netloc}{parts.path}".rstrip("/"), False, options)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return _local(unquote(parts.path))
    if parts.scheme or "://" in url:
        raise AskedWrongly(f"--to cannot be {url!r}: {_HOW}")
    return _local(str(PurePosixPath(working_directory) / url))


def _local(path: str) -> Place:
    path = "/" + normpath(path).lstrip("/")
    return Place(path, path, True)


class Records:
    """Small objects beside a table, each written once by whoever comes first: what was decided."""

    def __init__(self, place: Place) -> None:
        base, _, query = (place.url, "", "") if place.is_local else place.url.partition("?")
        self._url = f"{base.rstrip('/')}/{OURS}/records" + (f"?{query}" if query else "")

    def put(self, key: str, content: bytes) -> bytes:
        """What is there now: ours, or that of who came first."""

        async def put(store: ObjectStore) -> bytes:
            await store.begin()
            try:
                await store.put(key, [content])
            except ObjectExists:
                return await _content(store, key)
            return content

        return self._run(put)

    def get(self, key: str) -> bytes | None:
        async def get(store: ObjectStore) -> bytes | None:
            try:
                return await _content(store, key)
            except ObjectMissing:
                return None

        return self._run(self._if_begun(get))

    def names(self, prefix: str) -> list[str]:
        async def names(store: ObjectStore) -> list[str]:
            return sorted([key async for key, _ in store.list(prefix)])

        return self._run(self._if_begun(names))

    def delete(self, *keys: str) -> None:
        async def delete(store: ObjectStore) -> None:
            for key in keys:
                await store.delete(key)

        self._run(delete)

    @staticmethod
    def _if_begun(
        work: Callable[[ObjectStore], Coroutine[Any, Any, T]],
    ) -> Callable[[ObjectStore], Coroutine[Any, Any, T]]:
        async def begun(store: ObjectStore) -> T:
            await store.begin()
            return await work(store)

        return begun

    def _run(self, work: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            offload = ThreadOffload()
            store = open_for_tools(self._url, offload, SystemRandom())
            try:
                return await work(store)
            finally:
                await store.close()
                offload.close()

        try:
            return door().run(run())
        except Refused as refused:
            raise AskedWrongly(str(refused)) from refused


async def _content(store: ObjectStore, key: str) -> bytes:
    size = await store.size(key)
    return await store.get(key, 0, size) if size else b""


__all__ = ["DELTA_LOG", "OURS", "Place", "Records", "StoreUnavailable", "place_of"]
