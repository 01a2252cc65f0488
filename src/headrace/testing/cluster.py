"""A broker in the caller's process, on a free port, with data that goes away."""

import asyncio
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from headrace.node import Node, NodeConfig

T = TypeVar("T")


class Cluster:
    """`async with` runs the broker on the caller's loop; `with` runs it on a loop of its own, in a thread.

    `settings` are broker settings with Kafka's names, for example {"num.partitions": "3"}.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {"disk.reserve.bytes": "0", **(settings or {})}
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._node: Node | None = None
        self._thread: _LoopThread | None = None

    @property
    def bootstrap(self) -> str:
        """What a client takes as bootstrap.servers."""
        return self._running().address

    @property
    def metrics_url(self) -> str:
        return f"http://{self._running().metrics_address}/metrics"

    async def __aenter__(self) -> "Cluster":
        self._directory = tempfile.TemporaryDirectory(prefix="headrace-testing-")
        try:
            directory = Path(self._directory.name)
            (directory / "metadata").mkdir()
            self._node = Node(self._config(directory))
            await self._node.start()
        except BaseException:  # whatever ends the start, a cancellation too, the directory goes
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        node, self._node = self._node, None
        directory, self._directory = self._directory, None
        try:
            if node is not None:
                await node.stop()
        finally:
            if directory is not None:
                directory.cleanup()

    def __enter__(self) -> "Cluster":
        self._thread = _LoopThread()
        try:
            return self._thread.run(self.__aenter__())
        except BaseException:  # whatever ends the start, the thread goes
            self._thread.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.run(self.__aexit__(None, None, None))
        finally:
            self._thread.stop()

    def _running(self) -> Node:
        if self._node is None:
            raise RuntimeError("the cluster does not run: use it inside `with Cluster() as cluster`")
        return self._node

    def _config(self, directory: Path) -> NodeConfig:
        return NodeConfig(
            node_id=1,
            listen="127.0.0.1:0",
            data=str(directory / "node-1"),
            metadata=f"sqlite:{directory / 'metadata' / 'headrace.db'}",
            settings=self._settings,
        )


class _LoopThread:
    """An event loop in a thread of its own. A daemon: a test that forgot to stop it must not hang the test run."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-testing", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
