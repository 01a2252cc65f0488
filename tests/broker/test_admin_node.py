"""A setting that is changed while the node runs acts at once."""

import asyncio
from pathlib import Path

from headrace.controller.config_changes import DONE
from headrace.controller.configs import Edit, EditKind
from headrace.node import Node
from headrace.node_config import NodeConfig


async def is_served(node: Node) -> tuple[bool, asyncio.StreamWriter]:
    """Whether a new connection is kept: one that is refused is closed at once."""
    host, port = node.address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")  # ApiVersions, version 0
    return bool(await reader.read(4)), writer


async def test_a_lower_limit_of_connections_counts_for_the_next_one(tmp_path: Path) -> None:
    node = Node(
        NodeConfig(node_id=1, listen="127.0.0.1:0", data=str(tmp_path / "data"), metadata=f"sqlite:{tmp_path / 'm.db'}")
    )
    await node.start()
    try:
        served, first = await is_served(node)
        assert served
        edits = [Edit("max.connections", EditKind.SET, "1")]
        assert node.broker is not None
        assert await node.broker.controller.alter_broker_settings(None, lambda _: edits) == DONE
        served, second = await is_served(node)
        assert not served
        for writer in (first, second):
            writer.close()
    finally:
        await node.stop()
