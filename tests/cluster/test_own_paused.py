"""Town-27: a broker, the owner, and the claimer are paused in each of the four uses; no two owners are served.

Each program is one of examples/, in a process of its own, with three broker processes. A pause lasts 8 s: longer than
everything that waits for the silent here, a session (3 s) and an owner (6 s). In a hunt it also lasts 30 s.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import assigned_readers, change_capture, journaled_task, kv_store
from headrace.client import Consumer, Producer
from headrace.model import TopicPartition
from tests.servers.cluster import HeadraceCluster, running_cluster

EXAMPLES = Path(kv_store.__file__).parent
WORK_S_MAX = 60.0
SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2"}
TOPICS = [kv_store.LOG, change_capture.CHANGES, TopicPartition("results", 0), journaled_task.JOURNAL]


class Program:
    """One of the examples."""

    def __init__(self, directory: Path, example: str, name: str, *arguments: str) -> None:
        self.name = name
        self._said = directory / f"{example}-{name}-{len(list(directory.iterdir()))}.out"
        with self._said.open("wb") as out:
            command = [sys.executable, str(EXAMPLES / f"{example}.py"), *arguments[:1], name, *arguments[1:]]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def said(self) -> list[str]:
        return self._said.read_text().splitlines()

    def has_begun(self) -> bool:
        """Something was granted to it."""
        return any("generation" in line and "is owned by" not in line for line in self.said())

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Stage:
    """All four uses at once."""

    def __init__(self, cluster: HeadraceCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.source = directory / "rows"
        self.source.touch()
        self.rows = 0
        self.work = 0
        self.programs: list[Program] = []
        self.standby: Program

    def start(self, example: str, name: str, *arguments: str) -> Program:
        program = Program(self.directory, example, name, self.cluster.bootstrap, *arguments)
        self.programs.append(program)
        return program

    def pass_time(self, seconds: float) -> None:
        """While the world goes on: rows change, and work comes in."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self.source.open("ab") as rows:
                rows.write(b"".join(b"row %d\n" % number for number in range(self.rows, self.rows + 20)))
            self.rows += 20
            asyncio.run(self._add_work(20))
            time.sleep(0.1)

    def pass_time_until_begun(self, programs: list[Program]) -> None:
        deadline = time.monotonic() + 60
        while not all(program.has_begun() for program in programs):
            assert time.monotonic() < deadline, [program.said() for program in programs]
            self.pass_time(0.2)

    async def _add_work(self, count: int) -> None:
        self.work += count
        try:
            async with asyncio.timeout(WORK_S_MAX), Producer(self.cluster.bootstrap) as producer:
                for _ in range(count):
                    producer.send(assigned_readers.WORK, b"w", partition=0)
                await producer.flush()
        except TimeoutError:
            raise AssertionError(f"no work is taken\n{self._looks()}") from None

    def _looks(self) -> str:
        """To whom is the work sent, by what each node says, and what does it say of itself?"""
        nodes = self.cluster.nodes
        return "\n".join(
            f"{nodes[by].name}: {self.cluster.seen(assigned_readers.WORK, by)} {self.cluster.page(by, '/readyz')} "
            f"{nodes[by].log_tail()}"
            for by in nodes
        )

    def begin(self) -> dict[str, Program]:
        """Anna owns everything, and Ben stands by where the use knows standbys."""
        annas = {
            "kv_store": self.start("kv_store", "anna"),
            "change_capture": self.start("change_capture", "anna", str(self.source)),
            "assigned_readers": self.start("assigned_readers", "anna", "0"),
            "journaled_task": self.start("journaled_task", "anna"),
        }
        self.cluster.until(lambda: all(anna.has_begun() for anna in annas.values()), "anna owns everything")
        self.standby = self.start("kv_store", "ben")
        self.start("change_capture", "ben", str(self.source))
        return annas

    def take_over(self, name: str, generation: int) -> dict[str, Program]:
        """Where somebody from outside decides."""
        return {
            "assigned_readers": self.start("assigned_readers", name, "0", str(generation)),
            "journaled_task": self.start("journaled_task", name, str(generation)),
        }

    def until_all_go_on(self) -> None:
        """Every use makes progress: whoever owns is served."""
        before = {topic: self.end_of(topic) for topic in TOPICS}
        deadline = time.monotonic() + 90
        while not all(self.end_of(topic) > before[topic] + 3 for topic in TOPICS):
            assert time.monotonic() < deadline, (before, [p.said()[-3:] for p in self.programs])
            self.pass_time(0.3)

    def end_of(self, partition: TopicPartition) -> int:
        return len(asyncio.run(self.read(partition, to_end=False)))

    async def read(self, partition: TopicPartition, *, to_end: bool = True) -> list[bytes]:
        async with Consumer(self.cluster.bootstrap) as consumer:
            end = (await consumer.end_offsets([partition]))[partition]
            if not to_end:
                return [b""] * end
            consumer.assign([partition])
            values: list[bytes] = []
            while await consumer.position(partition) < end:
                values += [record.value or b"" for record in await consumer.poll(1_000)]
            return values

    def check(self) -> None:
        for program in self.programs:
            program.kill()
            assert not any("Traceback" in line and "OwnershipLost" not in "".join(program.said())
                           for line in program.said()), program.said()  # fmt: skip
        log = [json.loads(value) for value in asyncio.run(self.read(kv_store.LOG))]
        generations = [change["generation"] for change in log]
        assert generations == sorted(generations)
        assert len({(change["generation"], change["by"]) for change in log}) == len(set(generations))
        stored = {(change["generation"], int(change["value"])) for change in log}
        assert self.told("kv_store", "acknowledged") <= stored and len(stored) == len(log)
        changes = asyncio.run(self.read(change_capture.CHANGES))
        assert changes == [b"row %d" % number for number in range(len(changes))]
        results = asyncio.run(self.read(TopicPartition("results", 0)))
        assert [int(result.split()[0]) for result in results] == list(range(len(results)))
        steps = [json.loads(value)["step"] for value in asyncio.run(self.read(journaled_task.JOURNAL))]
        assert steps == list(range(1, len(steps) + 1))
        assert {step for _, step in self.told("journaled_task", "journaled")} <= set(steps)

    def told(self, example: str, word: str) -> set[tuple[int, int]]:
        """What the programs said that they had been promised."""
        found = set()
        for path in self.directory.glob(f"{example}-*.out"):
            for line in path.read_text().splitlines():
                if line.startswith(word + " ") and len(line.split()) == 3:
                    found.add((int(line.split()[1]), int(line.split()[2])))
        return found


@pytest.fixture
def pause_s() -> float:
    return 8.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with running_cluster(tmp_path / "cluster", settings=SETTINGS) as cluster:
        asyncio.run(kv_store.create_log(cluster.bootstrap))
        asyncio.run(change_capture.create_topic(cluster.bootstrap))
        asyncio.run(assigned_readers.create_topics(cluster.bootstrap))
        asyncio.run(journaled_task.create_journal(cluster.bootstrap))
        (tmp_path / "programs").mkdir()
        stage = Stage(cluster, tmp_path / "programs")
        try:
            yield stage
        finally:
            for program in stage.programs:
                program.kill()


def test_a_paused_broker(stage: Stage, pause_s: float) -> None:
    stage.begin()
    stage.pass_time(1)
    victim = stage.cluster.leader_of(kv_store.LOG.topic)
    stage.cluster.pause(victim)
    stage.pass_time(pause_s / 2)
    stage.take_over("ben", 1)
    stage.pass_time(pause_s / 2)
    stage.cluster.resume(victim)
    stage.until_all_go_on()
    stage.check()


def test_a_paused_owner(stage: Stage, pause_s: float) -> None:
    annas = stage.begin()
    stage.pass_time(1)
    for anna in annas.values():
        anna.signal(signal.SIGSTOP)
    bens = [stage.standby, *stage.take_over("ben", 1).values()]
    stage.pass_time_until_begun(bens)
    stage.pass_time(pause_s)
    for anna in annas.values():
        anna.signal(signal.SIGCONT)
    stage.until_all_go_on()
    stage.check()


def test_a_paused_claimer(stage: Stage, pause_s: float) -> None:
    """It stops as soon as it owns; another takes over from it, and it comes back."""
    annas = stage.begin()
    annas["kv_store"].kill()
    annas["change_capture"].kill()
    bens = [program for program in stage.programs if program.name == "ben"]
    bens += stage.take_over("ben", 1).values()
    waiting = set(bens)
    while waiting:
        for ben in [ben for ben in waiting if ben.has_begun()]:
            ben.signal(signal.SIGSTOP)
            waiting.discard(ben)
        time.sleep(0.001)
    cleos = [stage.start("kv_store", "cleo"), *stage.take_over("cleo", 2).values()]
    stage.pass_time_until_begun(cleos)
    stage.pass_time(pause_s)
    for ben in bens:
        ben.signal(signal.SIGCONT)
    stage.until_all_go_on()
    stage.check()
