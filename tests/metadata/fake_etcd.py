"""A server that speaks as much of etcd's API as a test scripts: for answers that a real etcd gives only by chance."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio

from headrace.metadata.etcd_messages import _data, _number

WatchScript: TypeAlias = Callable[[], AsyncIterator[bytes]]


def watch_answer(rev: int, *events: tuple[bytes, bytes, int]) -> bytes:
    """With puts of (key, value, revision); without any it is a sign of progress."""
    answer = _data(1, _number(3, rev))
    for key, value, mod_rev in events:
        kv = _data(1, key) + _number(2, mod_rev) + _number(3, mod_rev) + _data(5, value)
        answer += _data(11, _data(2, kv))
    return answer


class FakeEtcd(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.metadata: list[tuple[str, dict[str, str]]] = []
        self.txn_failure: grpc.StatusCode | None = None
        self.txn_answer = _data(1, _number(3, 5)) + _number(2, 1)
        self.watches: list[WatchScript] = []
        """One for each stream; the last one for all that follow."""
        self._server = grpc.aio.server(handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def __aenter__(self) -> "FakeEtcd":
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    def requests(self, method: str) -> list[bytes]:
        return [request for asked, request in self.asked if asked == method]

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method.removeprefix("/etcdserverpb.")
        self.metadata.append((method, dict(handler_call_details.invocation_metadata)))
        if method == "Watch/Watch":
            return grpc.stream_stream_rpc_method_handler(self._watch)
        if method == "Lease/LeaseKeepAlive":
            return grpc.stream_stream_rpc_method_handler(self._keep_alive)

        async def answer(request: bytes, context: Any) -> bytes:
            self.asked.append((method, request))
            if method == "KV/Txn":
                if self.txn_failure is not None:
                    await context.abort(self.txn_failure, "scripted")
                return self.txn_answer
            if method == "Lease/LeaseGrant":
                return _number(2, 77) + _number(3, 9)
            return _data(1, _number(3, 5))

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _watch(self, requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        self.asked.append(("Watch/Watch", await anext(requests)))
        script = self.watches.pop(0) if len(self.watches) > 1 else self.watches[0]
        async for answer in script():
            yield answer

    async def _keep_alive(self, requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            self.asked.append(("Lease/LeaseKeepAlive", request))
            yield _number(2, 77) + _number(3, 9)


async def silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""
