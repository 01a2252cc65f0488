"""Topics to tables under a real Spark, against a real broker process."""

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace.client.commit_group import Last
from headrace.errors import KafkaError
from headrace.pipeline import delta_table, lake
from headrace.pipeline.guard import Guard
from headrace.pipeline.lake import LakeOptions, LakeProgress, LakeResult, Watcher
from headrace.pipeline.outcome import AskedWrongly, PipelineFailed
from headrace.pipeline.parquet_table import ParquetTable
from headrace.pipeline.place import Place
from headrace.pipeline.tables import Table
from headrace.spark.door import Door
from headrace.spark.driver_claims import Driver, DriverClaims
from headrace.spark.scope import scope_of
from headrace.spark.task import Group
from tests.servers.process import BrokerProcess
from tests.spark.filling import fill, make_topic
from tests.spark.jvm.test_sink import forget_last
from tests.spark.jvm.test_source import committed
from tests.spark.sink_stage import readable

names = count(1)
DAY_MS = 86_400_000
FORMATS = ["parquet", "delta"]


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Of two partitions."""
    name = f"orders-{next(names)}"
    make_topic(broker.bootstrap, name, 2)
    return name


@pytest.fixture
def run(spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path) -> Callable[..., LakeResult]:
    def running(watcher: Watcher | None = None, stop: threading.Event | None = None, **options: Any) -> LakeResult:
        given = {"topics": (topic,), "to": str(tmp_path / "table"), "bootstrap": broker.bootstrap, "once": True}
        return lake.run(LakeOptions(**{**given, **options}), watcher, stop, spark)

    return running


def order(number: int, **other: Any) -> bytes:
    return json.dumps({"id": number, "at": number * DAY_MS // 4, "who": f"c{number % 3}", **other}).encode()


def orders(begin: int, end: int) -> list[bytes]:
    return [order(number) for number in range(begin, end)]


def table(place: Path, format: str) -> pa.Table:
    """As anybody reads it who knows nothing of Headrace."""
    if format == "delta":
        return DeltaTable(str(place)).to_pyarrow_table()
    return ds.dataset(str(place), format="parquet", partitioning="hive").to_table()


def ids(place: Path, format: str) -> list[int]:
    return sorted(table(place, format).column("id").to_pylist())


@pytest.mark.parametrize("format", FORMATS)
def test_each_record_is_one_row_also_when_batches_are_done_again(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path, format: str
) -> None:
    seen: list[LakeProgress] = []
    said: list[str] = []
    fill(broker.bootstrap, topic, orders(0, 20), partitions=2, key=b"k")
    watcher = Watcher(said.append, seen.append, began=lambda: said.append("began"))
    first = run(watcher, format=format, event_time="at", rows_per_batch=8, group=f"group of {topic}")
    assert committed(broker.bootstrap, f"group of {topic}") == {0: 10, 1: 10}, "as soon as it is through"
    assert (first.rows, first.dead_letters, first.batches) == (20, 0, 3), first
    assert said == [f"inferred from a sample of {topic}: at bigint, id bigint, who string", "began"]
    assert [one.rows for one in seen] == [8, 16, 20] and seen[-1].lag_rows == 0 and seen[0].lag_rows == 12
    place = tmp_path / "table"
    rows = table(place, format)
    assert sorted(rows.column("id").to_pylist()) == list(range(20))
    assert Counter(map(str, rows.column("event_date").to_pylist())) == {f"1970-01-0{day}": 4 for day in range(1, 6)}
    assert set(rows.column("_topic").to_pylist()) == {topic} and set(rows.column("_key").to_pylist()) == {b"k"}
    assert sorted(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True)) == [
        (partition, offset) for partition in range(2) for offset in range(10)
    ]

    forget_last(place / "_headrace" / "checkpoint")
    again = run(format=format, event_time="at")
    assert (again.rows, again.skipped_batches, again.query_id) == (0, 1, first.query_id)
    fill(broker.bootstrap, topic, orders(20, 30), partitions=2)
    assert run(format=format, event_time="at").rows == 10
    assert ids(place, format) == list(range(30))


@pytest.mark.parametrize(("format", "kind"), [("parquet", ParquetTable), ("delta", delta_table.DeltaTable)])
def test_a_batch_that_the_table_does_not_remember_comes_twice(
    run: Callable[..., LakeResult],
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    kind: Callable[..., Table],
) -> None:
    """So that it is the table's memory that the tests beside this one see, and nothing else."""
    fill(broker.bootstrap, topic, orders(0, 10), partitions=2)
    run(format=format)
    forget_last(tmp_path / "table" / "_headrace" / "checkpoint")

    def forgetful(place: Place, app_id: str, *form: Any) -> Table:
        return kind(place, f"{app_id}.forgotten", *form)

    monkeypatch.setattr(lake, kind.__name__, forgetful)
    assert run(format=format).rows == 10
    assert ids(tmp_path / "table", format) == sorted([*range(10)] * 2)


@pytest.mark.parametrize("format", FORMATS)
def test_records_that_are_no_rows_go_to_the_dead_letter_topic_once(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path, format: str
) -> None:
    bad = [b"{", b'{"id": "one"}', None, b"[1]", order(5, at="never"), order(8, at=1 << 62), order(9, at=1 << 50)]
    bad += [order(10) + b" x", order(11) + b"\n" + order(12), order(13) + b"," + order(14)]
    values = [*orders(0, 4), *bad, order(6, more=[{"a": 1}, {"a": "} {"}]), order(7) + b"\n"]
    fill(broker.bootstrap, topic, values, partitions=2)
    given = {"format": format, "schema": "id long, at long, who string", "event_time": "at"}
    result = run(**given)
    assert (result.rows, result.dead_letters) == (6, 10), result
    forget_last(tmp_path / "table" / "_headrace" / "checkpoint")
    run(**given)
    assert ids(tmp_path / "table", format) == [0, 1, 2, 3, 6, 7]
    assert readable(broker.bootstrap, f"{topic}-dead-letter") == sorted(value or b"" for value in bad)


def test_a_driver_that_dies_between_decision_and_moves_has_written_its_batch(
    run: Callable[..., LakeResult],
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(broker.bootstrap, topic, orders(0, 10), partitions=2)
    place = tmp_path / "table"
    with monkeypatch.context() as patch:

        def die(*_: object) -> None:
            raise OSError("it was told to die")

        patch.setattr(ParquetTable, "_publish", die)
        with pytest.raises(OSError, match="told to die"):
            run()
    assert not list(place.glob("event_date=*")), "nothing is seen of it"
    result = run()
    assert (result.rows, result.skipped_batches) == (0, 1)
    assert ids(place, "parquet") == list(range(10))


def test_a_driver_that_dies_before_the_decision_has_written_nothing(
    run: Callable[..., LakeResult],
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(broker.bootstrap, topic, orders(0, 10), partitions=2)
    with monkeypatch.context() as patch:

        def die(*_: object) -> bool:
            raise OSError("it was told to die")

        patch.setattr(ParquetTable, "commit", die)
        with pytest.raises(OSError, match="told to die"):
            run()
    assert run().rows == 10
    assert ids(tmp_path / "table", "parquet") == list(range(10))


@pytest.mark.parametrize("format", FORMATS)
def test_small_files_of_a_day_become_one(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path, format: str
) -> None:
    fill(broker.bootstrap, topic, orders(0, 24), partitions=2)
    result = run(format=format, rows_per_batch=6)
    place = tmp_path / "table"
    assert result.files == 8 and result.merged_files == 8, result
    assert ids(place, format) == list(range(24))
    if format == "delta":
        assert len(DeltaTable(str(place)).file_uris()) == 1
    else:
        (only,) = place.glob("event_date=*/*.parquet")
        assert pq.ParquetFile(only).metadata.num_rows == 24
    fill(broker.bootstrap, topic, orders(24, 30), partitions=2)
    run(format=format)
    assert ids(place, format) == list(range(30))


@pytest.mark.parametrize("format", FORMATS)
def test_runs_that_write_one_file_each_leave_one_in_the_end(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path, format: str
) -> None:
    place = tmp_path / "table"
    went = []
    for number in range(3):
        fill(broker.bootstrap, topic, [order(number)], partitions=1)
        went.append(run(format=format).merged_files)
    assert went == [0, 2, 2]
    assert ids(place, format) == [0, 1, 2]


def test_avro_by_its_schema(run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": ["null", "double"]}}},
        ],
    }
    values = []
    for number in range(6):
        row = {"id": number, "at": number * DAY_MS, "lines": [{"x": 0.5, "y": None}] * number}
        values.append(_avro(schema, row))
    fill(broker.bootstrap, topic, [*values, b"\xff", values[0] + b"more"], partitions=2)
    result = run(schema=json.dumps(schema), event_time="at")
    assert (result.rows, result.dead_letters) == (6, 2), result
    rows = table(tmp_path / "table", "parquet").sort_by("id").to_pylist()
    assert [str(row["event_date"]) for row in rows] == [f"1970-01-0{day}" for day in range(1, 7)]
    assert rows[2]["lines"] == [[("x", 0.5), ("y", None)]] * 2


def _avro(schema: Any, row: dict[str, Any]) -> bytes:
    from io import BytesIO

    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def test_a_stream_goes_on_until_it_is_stopped(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, orders(0, 10), partitions=2)
    stop = threading.Event()

    def committed(result: LakeResult) -> None:
        if result.rows == 10:
            fill(broker.bootstrap, topic, orders(10, 20), partitions=2)
        elif result.rows == 20:
            stop.set()

    result = run(Watcher(committed=committed), stop, once=False, every_s=0.1)
    assert result.rows == 20 and ids(tmp_path / "table", "parquet") == list(range(20))


def test_a_driver_stops_when_a_newer_one_has_taken_over(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, orders(0, 10), partitions=2)
    place = tmp_path / "table"
    at = Door()
    claims = at.call(DriverClaims)

    def committed(result: LakeResult) -> None:
        scope = scope_of(None, str(place / "_headrace" / "checkpoint"), str(place)).name
        newer = Driver("host-b", "another-run", 1 << 50)
        at.run(claims.take(broker.bootstrap, Group(scope, result.query_id, 1, newer.run_id), newer, Last(-1, None)))
        fill(broker.bootstrap, topic, orders(10, 20), partitions=2)

    try:
        with pytest.raises(KafkaError, match="taken over by a newer driver on host-b"):
            run(Watcher(committed=committed), once=False, every_s=0.1)
    finally:
        at.run(claims.close())
    assert ids(place, "parquet") == list(range(10))
    assert run().rows == 10 and ids(place, "parquet") == list(range(20))


@pytest.mark.parametrize("is_planning", [True, False], ids=["plans-a-batch", "does-one-again"])
def test_a_newer_driver_goes_on_when_the_older_one_was_faster(
    run: Callable[..., LakeResult],
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_planning: bool,
) -> None:
    """It was at work when the newer one began: it has the next batch in the checkpoint before it hears of that."""
    fill(broker.bootstrap, topic, orders(0, 4), partitions=2)
    query_id = run().query_id
    fill(broker.bootstrap, topic, orders(4, 8), partitions=2)
    place = tmp_path / "table"
    planned = place / "_headrace" / "checkpoint" / "offsets"
    wait, check = lake._Lake._wait, Guard.check
    said: list[str] = []

    def loses_once(one: Any, *what: Any) -> bool:
        if is_planning and not said:
            raise PipelineFailed(f"[{lake.ANOTHER_PLANNED}] Concurrent update to the log")
        return wait(one, *what)

    def is_late_once(one: Any, query_id: str, run_id: str, batch_id: int) -> None:
        if not is_planning and not said and batch_id:
            shutil.copy(planned / "1", planned / "2")
        check(one, query_id, run_id, batch_id)

    def tell(text: str) -> None:
        said.append(text)
        (planned / "2").unlink(missing_ok=True)

    monkeypatch.setattr(lake._Lake, "_wait", loses_once)
    monkeypatch.setattr(Guard, "check", is_late_once)
    at = Door()
    claims = at.call(DriverClaims)
    group = Group(scope_of(None, str(planned.parent), str(place)).name, query_id, 1, "older-run")
    older = Driver("host-a", "older-run", 1)
    at.run(claims.take(broker.bootstrap, group, older, Last(-1, None)))
    try:
        assert run(Watcher(said=tell)).rows == 4
        assert said == ["another driver works on this checkpoint, and is taken over from; once more"]
        assert not at.run(claims.holds(broker.bootstrap, group, older))
    finally:
        at.run(claims.close())
    assert ids(place, "parquet") == list(range(8))


def test_a_table_is_not_written_twice_by_a_query_that_lost_its_checkpoint(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, orders(0, 4), partitions=2)
    run()
    (tmp_path / "table" / "_headrace" / "checkpoint").rename(tmp_path / "lost")
    fill(broker.bootstrap, topic, orders(4, 8), partitions=2)
    with pytest.raises(PipelineFailed, match="its checkpoint is another one, so that rows would come twice"):
        run()
    with pytest.raises(PipelineFailed, match=r"if the checkpoint was moved, give option scope="):
        run(checkpoint=str(tmp_path / "lost"))
    assert ids(tmp_path / "table", "parquet") == list(range(4))
    with pytest.raises(KafkaError, match="nowhere"):
        run(topics=("nowhere",))


def test_a_checkpoint_does_not_go_on_in_a_table_that_lacks_what_was_before(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    apart = str(tmp_path / "apart")
    fill(broker.bootstrap, topic, orders(0, 4), partitions=2)
    run(checkpoint=apart)
    (tmp_path / "table").rename(tmp_path / "kept")
    fill(broker.bootstrap, topic, orders(4, 8), partitions=2)
    with pytest.raises(PipelineFailed, match="the table is another one, or was deleted, and would lack their rows"):
        run(checkpoint=apart)
    shutil.rmtree(tmp_path / "table")
    (tmp_path / "kept").rename(tmp_path / "table")
    assert run(checkpoint=apart).rows == 4 and ids(tmp_path / "table", "parquet") == list(range(8))


@pytest.mark.parametrize("format", FORMATS)
def test_a_checkpoint_from_a_backup_is_refused_before_its_rows_are_taken_for_written(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path, format: str
) -> None:
    """Of two batches before, and of the one before: that batch comes again under its number, and with other rows."""
    place = tmp_path / "table"
    checkpoint = place / "_headrace" / "checkpoint"
    for number in range(3):
        fill(broker.bootstrap, topic, orders(4 * number, 4 * number + 4), partitions=2)
        run(format=format)
        shutil.copytree(checkpoint, tmp_path / f"backup-{number}")
    fill(broker.bootstrap, topic, orders(12, 16), partitions=2)
    for number, what in ((0, "batch 1 of query .* has batch 2 already"), (1, "has another batch of that number")):
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / f"backup-{number}", checkpoint)
        with pytest.raises(PipelineFailed, match=f"the checkpoint is older than the table: {'.*' * number}{what}"):
            run(format=format)
    assert ids(place, format) == list(range(12))
    shutil.rmtree(checkpoint)
    (tmp_path / "backup-2").rename(checkpoint)
    assert run(format=format).rows == 4 and ids(place, format) == list(range(16))


def test_a_query_that_a_busy_machine_did_not_start_is_started_again(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = lake._Lake._wait
    said: list[str] = []

    def once_too_slow(one: Any, *what: Any) -> bool:
        if not said:
            raise PipelineFailed(lake.TOO_SLOW)
        return wait(one, *what)

    monkeypatch.setattr(lake._Lake, "_wait", once_too_slow)
    fill(broker.bootstrap, topic, orders(0, 4), partitions=2)
    run(Watcher(said=said.append), schema="id long")
    assert said == ["the machine is too busy for Spark to start Python in 10 s; once more"]
    assert ids(tmp_path / "table", "parquet") == list(range(4))


def test_a_schema_is_inferred_from_all_topics_and_partitions(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str
) -> None:
    other = f"{topic}-other"
    make_topic(broker.bootstrap, other, 2)
    fill(broker.bootstrap, topic, [b'{"x": 1}'] * 20, partitions=1)
    fill(broker.bootstrap, other, [b'{"y": 1}', b'{"z": 1}'], partitions=2)
    result = run(topics=(topic, other), sample_rows=8)
    assert (result.rows, result.schema) == (22, "x bigint, y bigint, z bigint")


def test_a_sampled_record_that_names_a_field_twice_is_in_nobodys_way(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, [b'{"id": 0, "id": 1}', b'{"id": 2, "in": {"x": 1}}', b'{"in": {"x": 1, "x": 2}}'])
    result = run()
    assert (result.rows, result.schema) == (3, "id bigint, in struct<x:bigint>")
    rows = table(tmp_path / "table", "parquet").select(["id", "in"]).to_pylist()
    assert {"id": 1, "in": None} in rows and {"id": None, "in": {"x": 2}} in rows


def test_names_that_differ_in_case_alone_need_a_schema(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str
) -> None:
    fill(broker.bootstrap, topic, [b'{"id": 1}', b'{"ID": 2}'])
    with pytest.raises(AskedWrongly, match=f"in a sample of {topic} the schema has two columns .* give --schema FILE"):
        run()
    assert run(schema="id long").rows == 2


def test_nested_names_that_differ_in_case_alone_need_a_schema(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str
) -> None:
    fill(broker.bootstrap, topic, [b'{"in": {"x": 1}}', b'{"in": {"X": 2}}'])
    with pytest.raises(AskedWrongly, match=r"two fields in\.X, which neither Spark nor Delta tells apart"):
        run()


@pytest.mark.parametrize("format", FORMATS)
def test_a_type_that_no_table_can_have_is_refused_before_it_is_kept(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str, format: str
) -> None:
    fill(broker.bootstrap, topic, orders(0, 4))
    with pytest.raises(AskedWrongly, match=r"a column who of type char\(3\), which no table can have"):
        run(schema="id long, who char(3)", format=format)
    assert run(schema="id long, who string", format=format).rows == 4


def test_what_was_half_done_when_a_checkpoint_was_moved_is_done_once(
    run: Callable[..., LakeResult],
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the scope that the refusal names; and --to is written otherwise."""
    fill(broker.bootstrap, topic, [*orders(0, 4), b"bad"], partitions=2)
    given = {"schema": "id long, at long, who string"}
    with monkeypatch.context() as patch:

        def die(*_: object) -> bool:
            raise OSError("it was told to die")

        patch.setattr(ParquetTable, "commit", die)
        with pytest.raises(OSError, match="told to die"):
            run(**given)
    moved = (tmp_path / "table" / "_headrace" / "checkpoint").rename(tmp_path / "moved")
    with pytest.raises(PipelineFailed, match=r"give option scope=\w+ to go on where it was") as refused:
        run(checkpoint=str(moved), **given)
    scope = str(refused.value).partition("give option scope=")[2].split()[0]
    result = run(checkpoint=str(moved), scope=scope, to=f"{tmp_path}/x/../table/", **given)
    assert (result.rows, result.dead_letters) == (4, 1)
    assert ids(tmp_path / "table", "parquet") == list(range(4))
    assert readable(broker.bootstrap, f"{topic}-dead-letter") == [b"bad"]


def test_another_schema_than_that_of_the_table_is_refused(
    run: Callable[..., LakeResult], broker: BrokerProcess, topic: str
) -> None:
    with pytest.raises(PipelineFailed, match=f"{topic} has no record to infer a schema from: give --schema FILE"):
        run()
    fill(broker.bootstrap, topic, orders(0, 4), partitions=2)
    run(schema="id long")
    with pytest.raises(AskedWrongly, match="begun with another schema"):
        run(schema="id string")
    with pytest.raises(AskedWrongly, match="--event-time when is no column of the schema: id"):
        run(event_time="when")
