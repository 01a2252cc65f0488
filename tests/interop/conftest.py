"""One real broker process for the whole suite, and every client library pointed at it."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.clients.asynchronous import AioKafka
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.java import Java
from tests.interop.clients.kcat import Kcat
from tests.interop.clients.node import KafkaJs
from tests.interop.clients.pure_python import KafkaPython
from tests.servers.choice import running_broker
from tests.servers.process import BrokerProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def client(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """The client library of that name; those of other languages keep one process for the whole suite."""
    made: dict[str, Any] = {}
    with ExitStack() as programs:

        def get(name: str) -> Any:
            if name not in made:
                made[name] = make_client(name, broker.bootstrap, tmp_path_factory.mktemp(name), programs)
            return made[name]

        yield get


def make_client(name: str, bootstrap: str, scratch: Path, programs: ExitStack) -> Any:
    """Programs that it needs end with `programs`."""
    for foreign in (Java, KafkaJs):
        if foreign.name == name:
            return foreign(programs.enter_context(foreign.start(bootstrap, scratch)), scratch)
    by_name = {kind.name: kind for kind in (Confluent, KafkaPython, AioKafka, Kcat)}
    return by_name[name](bootstrap)


@pytest.fixture(scope="session")
def confluent(broker: BrokerProcess) -> Confluent:
    """The client that checks what the others did."""
    return Confluent(broker.bootstrap)


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"
