"""Local bytes that are to be stored, read in pieces."""

from collections.abc import Iterator, Sequence

from headrace.storage.files import Files
from headrace.tier.store import FilePart, Source, SourceUnreadable


def pieces(files: Files, parts: Sequence[Source], piece_bytes_max: int) -> Iterator[bytes]:
    """All bytes of all parts, in order. Raises SourceUnreadable. Blocks on the disk."""
    for part in parts:
        if isinstance(part, FilePart):
            yield from _pieces_of_file(files, part, piece_bytes_max)
        elif part:
            yield part


def _pieces_of_file(files: Files, part: FilePart, piece_bytes_max: int) -> Iterator[bytes]:
    file = files.open(part.path)
    try:
        at, end = part.start, part.start + part.length
        while at < end:
            piece = file.read(at, min(piece_bytes_max, end - at))
            if not piece:
                raise SourceUnreadable(f"{part.path} ends at byte {at}, before byte {end}.")
            yield piece
            at += len(piece)
    except OSError as error:
        raise SourceUnreadable(f"{part.path} cannot be read: {error.strerror}.") from error
    finally:
        file.close()
