"""`headrace serve`: one node in this process.

Nothing here imports cyclopts, rich or the client: a node is to be ready in a fraction of a second. What the command
line makes of these arguments is in signatures.py and quick.py.
"""

import asyncio
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headrace.cli import output
from headrace.cli.advertise import is_wildcard, own_host
from headrace.cli.outcome import Failure, UsageError
from headrace.cli.program import program
from headrace.cli.values import absolute_directories, absolute_metadata, parse_address, parse_settings
from headrace.config import BrokerConfig
from headrace.node import Node
from headrace.node_config import NodeConfig, NotStarted, Ports, parse_settings_file
from headrace.settings import InvalidSetting
from headrace.system import ProcessApart

log = logging.getLogger(__name__)

NODE_ID_MAX = 2**31 - 1


def serve(
    *,
    node_id: int,
    listen: str,
    data: str,
    metadata: str,
    metrics: str = "127.0.0.1:0",
    advertise: str = "",
    rack: str = "",
    config: str = "",
    settings: tuple[str, ...] = (),
    json: bool = False,
    stop_on_eof: bool = False,
    await_nodes: int = 1,
) -> int:
    if not 0 <= node_id <= NODE_ID_MAX:
        raise UsageError(f"--node-id is a number from 0 to {NODE_ID_MAX}, not {node_id}")
    if await_nodes < 1:
        raise UsageError(f"--await-nodes takes a number above zero, not {await_nodes}")
    host, _ = parse_address(listen, "--listen")
    parse_address(metrics, "--metrics")
    if advertise:
        advertised, _ = parse_address(advertise, "--advertise")
        if is_wildcard(advertised):
            raise UsageError(f"--advertise takes an address that clients can connect to, not {advertise!r}")
    elif is_wildcard(host):
        own = own_host(host)
        advertise = f"{own}:0"
        output.say(f"headrace: clients are told to connect to {own}; --advertise HOST:PORT tells them another")
    node_config = NodeConfig(
        node_id=node_id,
        listen=listen,
        data=absolute_directories(data),
        metadata=absolute_metadata(metadata),
        metrics=metrics,
        advertise=advertise,
        settings=_settings(config, rack, settings),
    )
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _keep_freed_memory()
    _allow_many_files()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(node_config, json, stop_on_eof, await_nodes))


async def _serve(config: NodeConfig, as_json: bool, stop_on_eof: bool, await_nodes: int) -> int:
    node = Node(config, Ports(make_apart=ProcessApart))
    asyncio.get_running_loop().set_exception_handler(_report)
    stopping = _stop_request(stop_on_eof)
    try:
        await node.start()
    except NotStarted as error:
        raise Failure(str(error)) from error
    assert node.fatal is not None
    _collect_rarely()
    end = asyncio.ensure_future(_first(stopping.wait(), node.fatal))
    seen = asyncio.ensure_future(node.sees(await_nodes))
    try:
        await _first(seen, end)
        if seen.done():
            _announce(config, node, as_json)
        await end
    finally:
        seen.cancel()
        await node.stop()
    if node.fatal.done():
        raise Failure(node.fatal.result())
    return 0


async def _first(*works: Awaitable[Any]) -> None:
    """Until one of them is done."""
    await asyncio.wait([asyncio.ensure_future(work) for work in works], return_when=asyncio.FIRST_COMPLETED)


def _collect_rarely() -> None:
    """What a node holds after its start stays, and requests leave hardly a cycle behind: looking for them less often
    spares a tenth of a small request, and a hundred thousand partitions are not walked again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _allow_many_files() -> None:
    """Connections and data files are descriptors; what the system lets this process have, it takes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A socket that the system refuses is told in a line; what else a callback raises is a bug of ours."""
    error = context.get("exception")
    if isinstance(error, OSError):
        log.warning("%s: %s", context.get("message", "the event loop reports"), error)
    else:
        loop.default_exception_handler(context)


def _stop_request(stop_on_eof: bool) -> asyncio.Event:
    """Set by the first SIGTERM or Ctrl-C; the second one finds the system's own handler and ends the process."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if stop_on_eof:
        _watch_input(loop, stop)
    return stopping


def _watch_input(loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    fd = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(fd, 4096):
            loop.remove_reader(fd)
            ended()

    try:
        loop.add_reader(fd, readable)
    except PermissionError:
        raise UsageError("--stop-on-eof needs a pipe or a terminal as standard input, not a file") from None


def _announce(config: NodeConfig, node: Node, as_json: bool) -> None:
    metrics = f"http://{node.metrics_address}/metrics"
    if as_json:
        output.document(
            {
                "id": config.node_id,
                "pid": os.getpid(),
                "address": node.address,
                "metrics": metrics,
                "data": config.data,
                "command": _command(config, node),
                "broker_epoch": node.broker_epoch,
            }
        )
    else:
        output.line(f"Node {config.node_id} serves {node.address}, with data in {config.data} and metrics at {metrics}")
    output.flush()


def _command(config: NodeConfig, node: Node) -> list[str]:
    """What starts this very node again, on the same ports, from any directory."""
    settings = [argument for key, value in config.settings.items() for argument in ("--set", f"{key}={value}")]
    return [
        *program(),
        "serve",
        *("--node-id", str(config.node_id)),
        *("--listen", node.listen_address),
        *(("--advertise", node.address) if config.advertise else ()),
        *("--data", config.data),
        *("--metadata", config.metadata),
        *("--metrics", node.metrics_address),
        *settings,
    ]


def _settings(file: str, rack: str, pairs: tuple[str, ...]) -> dict[str, str]:
    """What is given on the command line wins over the file."""
    from_file = _checked(_read_settings(file), f" in {file}") if file else {}
    racked = {"broker.rack": rack} if rack else {}
    return _checked({**from_file, **racked, **parse_settings(pairs)})


def _read_settings(file: str) -> dict[str, str]:
    try:
        return parse_settings_file(Path(file).read_text("utf-8"))
    except ValueError as error:  # of the text, or of its bytes
        raise UsageError(f"--config {file} is no file of settings, one key=value on each line: {error}") from None


def _checked(settings: dict[str, str], where: str = "") -> dict[str, str]:
    try:
        BrokerConfig.parse(settings)
    except InvalidSetting as error:
        raise UsageError(f"{error}{where}") from None
    return settings


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _keep_freed_memory() -> None:
    """Big buffers come and go with every fetch; glibc would return each to the system and fault it in again."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # Another C library, which has no such habit to break.
    mmap_threshold, trim_threshold = -3, -1
    mallopt(mmap_threshold, 32 << 20)
    mallopt(trim_threshold, 256 << 20)
