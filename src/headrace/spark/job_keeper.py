"""python -m headrace.spark.job_keeper BOOTSTRAP JOB SIGN PID: brokers hear of a batch job while its driver lives.

A process of its own beside the driver (`job_keeping`), until the file SIGN is gone, or process PID, or the job is
over.
"""

import os
import sys
import time
from contextlib import suppress

QUIET_S = 5.0
"""Most jobs are over by then, and cost nothing but this."""
EVERY_S = 10.0
_LOOK_S = 0.5


class Watch:
    """Whether anybody still needs this process."""

    def __init__(self, sign: str, process_id: int) -> None:
        self._sign = sign
        self._process_id = process_id

    def is_needed(self) -> bool:
        return os.path.exists(self._sign) and _lives(self._process_id)

    def passes(self, seconds: float) -> bool:
        """Whether it is needed still when they are over. False as soon as it is not."""
        end = time.monotonic() + seconds
        while self.is_needed():
            left = end - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(left, _LOOK_S))
        return False


def _lives(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not _is_defunct(process_id)


def _is_defunct(process_id: int) -> bool:
    """It is dead, and nobody has asked how it ended: in a container the first process may never do so."""
    try:
        with open(f"/proc/{process_id}/stat", "rb") as file:  # a name may be of any bytes
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return False  # not on Linux, or it is gone just now, which the next look finds


def keep(bootstrap: str, job: str, watch: Watch) -> None:
    from headrace.client.commit_group import CommitGroups
    from headrace.client.errors import NotReachable, TimedOut
    from headrace.errors import KafkaError
    from headrace.spark.door import door

    at = door()
    groups = at.call(lambda: CommitGroups(bootstrap, client_id="headrace-spark"))
    while watch.is_needed():
        try:
            if not at.run(groups.is_offered()) or at.run(groups.alive(job)):
                return
        except (NotReachable, TimedOut):
            pass  # it has tried for two minutes, and goes on: the driver lives
        except KafkaError:
            return  # brokers that know nothing of it: transactions end when they time out
        if not watch.passes(EVERY_S):
            return


def main(bootstrap: str, job: str, sign: str, process_id: str) -> None:
    watch = Watch(sign, int(process_id))
    try:
        if watch.passes(QUIET_S):
            keep(bootstrap, job, watch)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(sign)


if __name__ == "__main__":
    main(*sys.argv[1:])
