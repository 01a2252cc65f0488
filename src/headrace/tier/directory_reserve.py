"""Room on the disk of a directory store that is kept for small objects alone: so that a full one can still be emptied.

Expiry publishes a manifest before it deletes. Where there is no room left for one, the file that held some goes, and
comes back when something was deleted. Until then no segment is stored, so that none takes that room.
"""

import errno
from contextlib import suppress

from headrace.storage.files import Files

RESERVE = ".reserve"
RESERVE_BYTES = 16 << 20
SMALL_BYTES_MAX = RESERVE_BYTES // 8
FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    def __init__(self, root: str) -> None:
        self._path = f"{root}/{RESERVE}"
        self.is_spent = False

    def keep(self, files: Files) -> bool:
        """False if there is no room for it. Other nodes keep the same one. Only where the store is known to be."""
        if not files.exists(self._path):
            try:
                files.reserve(self._path, RESERVE_BYTES)
            except OSError as error:
                with suppress(OSError):
                    files.remove(self._path)
                return error.errno not in FULL  # a disk that keeps no room at all can be used too
        self.is_spent = False
        return True

    def spend(self, files: Files) -> bool:
        """Whether there was any."""
        self.is_spent = True
        try:
            files.remove(self._path)
        except OSError:
            return False
        return True
