"""What `lake` is asked to do."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headrace.client.cluster import parse_bootstrap
from headrace.core.transactional_id import SCOPE_FORM, is_scope
from headrace.pipeline.outcome import AskedWrongly
from headrace.pipeline.place import Place, place_of
from headrace.spark.scope import RESERVED

Format = Literal["parquet", "delta"]
FORMATS = ("parquet", "delta")
START = ("beginning", "end")
SET_HERE = {
    "kafka.bootstrap.servers": "--bootstrap",
    "kafka.isolation.level": "that only what is committed becomes a row",
    "subscribe": "TOPIC",
    "startingoffsets": "--from",
    "maxoffsetspertrigger": "--rows-per-batch",
}
"""Options of the source that follow from others, and from which."""


@dataclass(frozen=True)
class LakeOptions:
    topics: tuple[str, ...]
    to: str
    format: str = "parquet"
    bootstrap: str = "127.0.0.1:9092"
    once: bool = False
    """Ends when all that was there at the beginning is in the table."""
    every_s: float = 10.0
    start: str = "beginning"
    """Of a new checkpoint."""
    schema: str | None = None
    """The text: DDL, Spark's JSON or an Avro schema. None: inferred from a sample."""
    avro_header: bool = False
    event_time: str | None = None
    dead_letter: str | None = None
    """None: the name of the first topic, with -dead-letter behind it."""
    checkpoint: str | None = None
    scope: str | None = None
    group: str | None = None
    rows_per_batch: int = 1_000_000
    sample_rows: int = 1_000
    file_bytes: int = 128 << 20
    merge_files: int = 32
    """So many small files of a day are made one; 0: never."""
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)
    """Further options of the source, by their names there."""
    working_directory: str = field(default_factory=os.getcwd)
    """What `to` is relative to."""

    @property
    def dead_letter_topic(self) -> str:
        return self.dead_letter or f"{self.topics[0]}-dead-letter"

    def place(self) -> Place:
        return place_of(self.to, self.working_directory)

    def checkpoint_location(self) -> str:
        """AskedWrongly where Spark could not write it."""
        chosen = self.checkpoint or self.place().checkpoint
        if chosen is None:
            raise AskedWrongly(
                "--checkpoint is missing: Spark keeps where it is in a directory that the driver sees, or where a jar "
                "of Hadoop lets it write"
            )
        return chosen

    def check(self) -> None:
        """AskedWrongly, with one sentence for the first thing that cannot be meant."""
        if not self.topics:
            raise AskedWrongly("no topic is named")
        if twice := [one for at, one in enumerate(self.topics) if one in self.topics[:at]]:
            raise AskedWrongly(f"topic {twice[0]} is named twice")
        if self.dead_letter_topic in self.topics:
            raise AskedWrongly(f"--dead-letter {self.dead_letter_topic} is one of the topics that are read")
        if self.format not in FORMATS:
            raise AskedWrongly(f"--format is parquet or delta, not {self.format!r}")
        if self.start not in START:
            raise AskedWrongly(f"--from is beginning or end, not {self.start!r}")
        try:
            parse_bootstrap(self.bootstrap)
        except ValueError as error:
            raise AskedWrongly(str(error)) from None
        if self.scope is not None and (not is_scope(self.scope) or self.scope in RESERVED):
            raise AskedWrongly(f"--scope has {SCOPE_FORM}, not {self.scope!r}")
        self._check_numbers()
        for name in self.source:
            if name.lower() in SET_HERE:
                raise AskedWrongly(f"--source {name} cannot be given: {SET_HERE[name.lower()]} says it")
        if self.avro_header and self.schema is None:
            raise AskedWrongly("--avro-header needs --schema with an Avro schema")
        self.place()
        self.checkpoint_location()

    def _check_numbers(self) -> None:
        for name, value, least in (
            ("--rows-per-batch", self.rows_per_batch, 1),
            ("--sample", self.sample_rows, 1),
            ("--file-size", self.file_bytes, 1 << 16),
            ("--merge-files", self.merge_files, 0),
        ):
            if value < least:
                raise AskedWrongly(f"{name} is {least} at least, not {value}")
        if self.merge_files == 1:
            raise AskedWrongly("--merge-files is 0 for never, or 2 at least")
