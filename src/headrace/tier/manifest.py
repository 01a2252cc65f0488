"""The bytes of a manifest: one line that says what it is and its checksum, then JSON. What it means: core.tier_rows."""

import re

import msgspec
from crc32c import crc32c

from headrace.core.tier_rows import COPY_FINISHED as COPY_FINISHED
from headrace.core.tier_rows import COPY_STARTED as COPY_STARTED
from headrace.core.tier_rows import DELETE_STARTED as DELETE_STARTED
from headrace.core.tier_rows import Manifest as Manifest
from headrace.core.tier_rows import SegmentRow as SegmentRow
from headrace.core.tier_rows import SegmentState as SegmentState
from headrace.core.tier_rows import check_row
from headrace.tier.store import ObjectStore

VERSION = 1
_HEAD = re.compile(rb"headrace-manifest (\d{1,9}) ([0-9a-f]{8})\n")


class CorruptManifest(ValueError):
    """Bytes that are no manifest, or one of a newer program. The text is one sentence that says what is wrong."""


def encode(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    return b"headrace-manifest %d %08x\n%s" % (VERSION, crc32c(body), body)


def decode(data: bytes) -> Manifest:
    head = _HEAD.match(data)
    if head is None:
        raise CorruptManifest("The object does not begin as a manifest does.")
    if int(head[1]) != VERSION:
        raise CorruptManifest(f"The manifest has version {int(head[1])}, only {VERSION} is known.")
    body = data[head.end() :]
    if crc32c(body) != int(head[2], 16):
        raise CorruptManifest("The manifest fails its checksum.")
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except msgspec.MsgspecError as error:
        raise CorruptManifest(f"The manifest cannot be read: {error}.") from None
    for row in manifest.rows:
        if wrong := check_row(row):
            raise CorruptManifest(f"The manifest has a segment {row.id} with {wrong}.")
    return manifest


async def load(store: ObjectStore, key: str) -> Manifest:
    """Raises CorruptManifest, ObjectMissing, StoreUnavailable."""
    size = await store.size(key)
    if not size:
        raise CorruptManifest("The manifest is empty.")
    return decode(await store.get(key, 0, size))
