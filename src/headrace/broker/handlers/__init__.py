"""A file per API. This table says which one serves which key; versions are told by wire.apis alone."""

from collections.abc import Callable
from typing import Any

from headrace.broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k18_api_versions,
    k21_delete_records,
    k23_offset_for_leader_epoch,
)

HANDLERS: dict[int, Callable[..., Any]] = {
    0: k00_produce.handle,
    1: k01_fetch.handle,
    2: k02_list_offsets.handle,
    3: k03_metadata.handle,
    18: k18_api_versions.handle,
    21: k21_delete_records.handle,
    23: k23_offset_for_leader_epoch.handle,
}
