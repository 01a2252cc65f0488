"""What a task does: the records of its piece, as Arrow batches."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.spark.fetching import Fetching
from headrace.spark.options import Connection
from headrace.spark.planning import Piece, Range
from headrace.spark.tier_planning import TierPiece
from headrace.spark.tier_reading import read_tier
from headrace.spark.verdicts import DataLoss, Query
from headrace.spark.worker_memory import keep_what_is_loaded

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


def read(
    piece: Piece, connection: Connection, schema: "pa.Schema", fails_on_data_loss: bool, query: Query
) -> "Iterator[pa.RecordBatch]":
    """The seam of the ways to the data: by what kind of piece it is."""

    def fetched(rest: Range) -> "Iterator[pa.RecordBatch]":
        return fetch(rest, connection, schema, fails_on_data_loss, query)

    return read_tier(piece, connection, schema, fetched) if isinstance(piece, TierPiece) else fetched(piece.range)


def fetch(
    wanted: Range, connection: Connection, schema: "pa.Schema", fails_on_data_loss: bool, query: Query
) -> "Iterator[pa.RecordBatch]":
    """From brokers. DataLoss for what is not there any more, unless that is accepted."""
    from headrace.spark.decode.aborted import Aborted, AbortedRanges  # the driver needs no compiler
    from headrace.spark.decode.decoding import Decoder

    keep_what_is_loaded()
    topic, index = wanted.partition
    decoder = Decoder(schema, topic, index)
    with Fetching(wanted, connection, query) as fetching:
        while fetching.position < wanted.end:
            try:
                fetched = fetching.next()
            except DataLoss as error:
                if fails_on_data_loss:
                    raise
                log.warning("%s", error.loss)
                if not fetching.position < error.loss.resume_at < wanted.end:
                    return  # nothing of this range is left
                fetching.move_to(error.loss.resume_at)
                continue
            aborted = None
            if fetched.aborted is not None:
                aborted = AbortedRanges(Aborted(one.first_offset, one.producer_id) for one in fetched.aborted)
            yield from decoder.decode(fetched.data, fetching.position, fetching.end, aborted)
            fetching.position = min(fetched.end, fetching.end)
