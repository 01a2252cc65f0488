"""What every member that is written in Python tells, one line of JSON each, until its standard input ends."""

import json
import sys
import threading
from collections.abc import Iterable


def tell_assigned(partitions: Iterable[int]) -> None:
    _tell({"assigned": sorted(partitions)})


def tell_read(values: list[int]) -> None:
    if values:
        _tell({"read": values})


def _tell(document: object) -> None:
    print(json.dumps(document), flush=True)


def ending() -> threading.Event:
    """Set when standard input has ended."""
    end = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        end.set()

    threading.Thread(target=wait, daemon=True).start()
    return end
