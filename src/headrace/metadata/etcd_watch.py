"""One stream of changes from one member of an etcd cluster."""

import asyncio
import contextlib
from itertools import groupby

import grpc
import grpc.aio

from headrace.metadata import etcd_messages as messages
from headrace.metadata.etcd_members import Member
from headrace.metadata.store import Compacted, Revision

PROGRESS_S = 2.0
SILENCE_S_MAX = 5.0
"""Progress is asked for every 2 s, so that a member which says nothing for so long hangs."""

STREAM_FAILURES = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    ConnectionError,
    TimeoutError,
    messages.BadMessage,
)
"""How a stream ends. Writing to one that is finished already raises InvalidStateError."""


class WatchStream:
    def __init__(self, member: Member, prefix: bytes, after_rev: int) -> None:
        self.member = member
        self._call = member.stream("Watch/Watch")
        self._prefix = prefix
        self._position = after_rev
        self._progress: asyncio.Task[None] | None = None

    async def read(self) -> list[Revision]:
        """The next whole revisions, or none: the member only shows that it lives. Raises STREAM_FAILURES, Compacted."""
        if self._progress is None:
            # From the last known revision on, not from the next: etcd lets a watch begin with a revision of which
            # compaction has removed the deletions. Asked so, it says that it has compacted.
            await self._call.write(messages.watch_request(self._prefix, max(1, self._position)))
            self._progress = asyncio.create_task(self._ask_for_progress())
        # Not wait_for: in Python 3.11 it forgets that its caller was cancelled if an answer comes at the same time.
        async with asyncio.timeout(SILENCE_S_MAX):
            answer = await self._call.read()
        if answer is grpc.aio.EOF:
            raise ConnectionError("etcd ended the watch")
        watched = messages.read_watch(answer)
        if watched.compact_rev:
            raise Compacted(f"etcd forgot what was before revision {watched.compact_rev}")
        if watched.is_canceled:
            raise ConnectionError(f"etcd canceled the watch: {watched.cancel_reason}")
        # An answer without events is a sign of life and no more: the revision in its header may be ahead of events
        # that are still to come (etcd 15220), so that nothing may go on from there.
        revisions = [
            Revision(rev, tuple(sorted(events)))
            for rev, events in groupby(watched.events, lambda event: event.mod_rev)
            if rev > self._position
        ]
        if revisions:
            self._position = revisions[-1].rev
        return revisions

    def cancel(self) -> None:
        self._call.cancel()
        if self._progress is not None:
            self._progress.cancel()

    async def _ask_for_progress(self) -> None:
        with contextlib.suppress(*STREAM_FAILURES):  # whoever reads sees it too
            while True:
                await asyncio.sleep(PROGRESS_S)
                await self._call.write(messages.PROGRESS_REQUEST)
