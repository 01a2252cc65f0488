"""Which object store a URL means."""

from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.runtime import Offload, Random
from headrace.storage.files import Files
from headrace.storage.os_files import OsFiles
from headrace.tier.directory import DirectoryStore
from headrace.tier.store import ObjectStore, Refused

TOOL_FILES_MAX = 8
SCHEMES = frozenset({"s3", "gs", "az"})
OPTIONS: dict[str, frozenset[str]] = {
    "s3": frozenset({"endpoint", "region"}),
    "gs": frozenset(),
    "az": frozenset({"endpoint"}),
}
_HOW = "give a directory, file:///DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"


def open_object_store(url: str, files: Files, offload: Offload, random: Random) -> ObjectStore:
    """Raises Refused with one sentence; asks nothing of a disk or a server yet."""
    if url.startswith("/"):
        return DirectoryStore(url, files, offload, random)
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return DirectoryStore(unquote(parts.path), files, offload, random)
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise Refused(f"Cannot use {url!r} as object store: {_HOW}.")
    if parts.username is not None or parts.password is not None:
        raise Refused("Credentials do not belong in the URL of an object store: give them in the environment.")
    options = dict(parse_qsl(parts.query))
    if unknown := sorted(options.keys() - OPTIONS[parts.scheme]):
        raise Refused(f"Cannot use {url!r} as object store: there is no option {unknown[0]!r}.")
    try:
        # Only those who use such a store need obstore, which comes with the extras "tier" and "spark".
        from headrace.tier.cloud import CloudStore
    except ImportError as error:
        raise Refused(
            f"Object store {url} needs obstore: install headrace[tier], or headrace[spark] where Spark runs."
        ) from error
    return CloudStore.open(f"{parts.scheme}://{parts.netloc}{parts.path}", options, files, offload)


def open_for_tools(url: str, offload: Offload, random: Random) -> ObjectStore:
    """For a command that is no node, and has no files of its own. Raises Refused."""
    return open_object_store(url, OsFiles(open_files_max=TOOL_FILES_MAX), offload, random)
