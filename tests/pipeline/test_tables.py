"""Tables without Spark: batches that come again, drivers that die, and two of them at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Log

from headrace.pipeline import delta_table, lake, parquet_table
from headrace.pipeline.delta_table import DeltaTable
from headrace.pipeline.files import DayFiles, Written, file_prefix
from headrace.pipeline.lake_options import LakeOptions
from headrace.pipeline.merging import join
from headrace.pipeline.outcome import AskedWrongly, PipelineFailed
from headrace.pipeline.parquet_table import ParquetTable
from headrace.pipeline.place import Records, place_of

FILE = pa.schema([("id", pa.int64())])
WHOLE = pa.schema([("id", pa.int64()), ("event_date", pa.date32())])
DAY = "2026-01-31"


class Bench:
    def __init__(self, root: Path, format: str) -> None:
        self.root = root
        self.place = place_of(str(root), "/")
        self.format = format

    def driver(self, app_id: str = "scope.query") -> Any:
        kind, schema = (DeltaTable, WHOLE) if self.format == "delta" else (ParquetTable, FILE)
        table = kind(self.place, app_id, schema, 1 << 20)
        table.begin()
        return table

    def files(self, table: Any, batch_id: int, ids: list[int]) -> list[Written]:
        """What a task writes."""
        days = DayFiles(self.place, table.below(batch_id), file_prefix(batch_id, 0, 0), FILE, 1 << 20)
        columns = {
            "id": pa.array(ids, pa.int64()),
            "event_date": pa.array([DAY] * len(ids)).cast(pa.date32()),
            "_reason": pa.nulls(len(ids), pa.string()),
        }
        days.add(pa.RecordBatch.from_pydict(columns))
        days.close()
        return days.written

    def ids(self) -> list[int]:
        if self.format == "delta":
            found = Log(str(self.root)).to_pyarrow_table()
        else:
            found = ds.dataset(str(self.root), format="parquet", partitioning="hive").to_table()
        return sorted(found.column("id").to_pylist()) if found.num_rows else []


@pytest.fixture(params=["parquet", "delta"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(tmp_path / "table", request.param)


def test_a_batch_is_in_the_table_once_whoever_comes_again(bench: Bench) -> None:
    table = bench.driver()
    assert not table.has(0)
    assert table.commit(0, bench.files(table, 0, [1, 2]))
    assert table.has(0) and bench.ids() == [1, 2]
    again = bench.driver()
    assert not again.commit(0, bench.files(again, 0, [1, 2]))
    assert bench.ids() == [1, 2]
    assert again.commit(1, bench.files(again, 1, [3]))
    other = bench.driver("scope.another")
    assert not other.has(1) and other.commit(1, bench.files(other, 1, [4]))
    assert bench.ids() == [1, 2, 3, 4]


def test_of_two_drivers_at_one_batch_one_counts(bench: Bench) -> None:
    one, two = bench.driver(), bench.driver()
    of_one, of_two = bench.files(one, 0, [1, 2]), bench.files(two, 0, [1, 2])
    assert bench.ids() == [], "nothing is seen before it is decided"
    assert two.commit(0, of_two) and not one.commit(0, of_one)
    assert bench.ids() == [1, 2]


def test_a_driver_that_was_paused_for_very_long_adds_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_table, "MANIFESTS_KEPT", 2)
    paused, newer = bench.driver(), bench.driver()
    for batch in range(5):
        assert newer.commit(batch, bench.files(newer, batch, [batch]))
    assert not paused.commit(0, bench.files(paused, 0, [0]))
    assert bench.ids() == list(range(5)) and newer.last_batch() == 4


def test_what_a_batch_was_planned_to_have_is_kept_with_it(bench: Bench) -> None:
    table = bench.driver()
    assert table.last_batch() is None
    table.commit(3, bench.files(table, 3, [1]), "up to here")
    other = bench.driver("scope.another")
    other.commit(3, bench.files(other, 3, [2]), "up to there")
    assert not bench.driver().commit(3, [], "elsewhere")
    assert bench.driver().last_batch() == 3 and bench.driver().plan_of(3) == "up to here"
    table.commit(4, [])
    assert table.last_batch() == 4 and table.plan_of(4) == ""


def test_a_delta_log_is_not_read_to_its_beginning_for_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_table, "PLAN_ENTRIES_MAX", 2)
    bench = Bench(tmp_path, "delta")
    table = bench.driver()
    for batch_id in range(3):
        assert table.commit(batch_id, bench.files(table, batch_id, [batch_id]), f"plan {batch_id}")
    assert [table.plan_of(batch_id) for batch_id in range(3)] == ["", "plan 1", "plan 2"]


def test_attempts_that_failed_leave_no_rows(bench: Bench) -> None:
    table = bench.driver()
    bench.files(table, 0, [1])
    table.commit(0, bench.files(table, 0, [1]))
    bench.files(table, 0, [1])
    bench.driver().has(0)
    assert bench.ids() == [1]


def test_a_batch_whose_files_the_driver_does_not_see_is_not_committed(bench: Bench) -> None:
    """As when workers on other hosts write to directories of their own."""
    table = bench.driver()
    files = bench.files(table, 0, [1, 2])
    there = bench.root / table.below(0) / files[0].path
    hidden = there.rename(bench.root.parent / "on-another-host")
    with pytest.raises(PipelineFailed, match=r"1 of 1 files .* one directory that the driver and all workers share"):
        table.commit(0, files)
    assert not bench.driver().has(0)
    hidden.rename(there)
    assert table.commit(0, files) and bench.ids() == [1, 2]


def test_small_files_become_one_and_rows_stay(bench: Bench) -> None:
    table = bench.driver()
    for batch in range(5):
        table.commit(batch, bench.files(table, batch, [batch]))
    other = bench.driver("scope.another")
    assert other.small_files([DAY, "2026-02-01"]) == {DAY: 5, "2026-02-01": 0}
    assert table.merge([DAY], 6) == 0
    assert table.merge([DAY], 5) == 5
    assert other.small_files([DAY]) == {DAY: 1}
    assert bench.ids() == list(range(5))
    table.commit(5, bench.files(table, 5, [5]))
    assert table.merge([DAY], 2) == 2
    assert bench.ids() == list(range(6))
    assert table.has(4) and bench.ids() == list(range(6))


@pytest.mark.parametrize("dies_at", ["_move", "_delete"])
def test_a_merge_that_was_begun_is_finished_by_the_next_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    bench = Bench(tmp_path / "table", "parquet")
    table = bench.driver()
    for batch in range(3):
        table.commit(batch, bench.files(table, batch, [batch]))

    def die(*_: object) -> None:
        raise OSError("it was told to die")

    with monkeypatch.context() as patch:
        patch.setattr(ParquetTable, dies_at, die)
        with pytest.raises(OSError, match="told to die"):
            table.merge([DAY], 2)
    bench.driver()
    assert bench.ids() == [0, 1, 2]
    assert len(list((tmp_path / "table").glob("event_date=*/*.parquet"))) == 1


def test_of_two_merges_of_one_day_one_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused driver has chosen its files, and comes back when another one has merged them."""
    paused, other = bench.driver(), bench.driver()
    for batch in range(3):
        other.commit(batch, bench.files(other, batch, [batch]))
    when_joined(monkeypatch, lambda: other.merge([DAY], 2) == 3)
    assert paused.merge([DAY], 2) == 0
    assert bench.ids() == [0, 1, 2]
    assert other.commit(3, bench.files(other, 3, [3])) and paused.merge([DAY], 2) == 2
    assert bench.ids() == [0, 1, 2, 3]


def test_a_merge_whose_files_another_job_has_merged_already_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path / "table", "parquet")
    paused, other = bench.driver(), bench.driver()
    for batch in range(3):
        other.commit(batch, bench.files(other, batch, [batch]))
    todo = [lambda: other.merge([DAY], 2) == 3]

    def joins_later(*given: Any) -> int:
        if todo:
            assert todo.pop()()
        return join(*given)

    monkeypatch.setattr(parquet_table, "join", joins_later)
    assert paused.merge([DAY], 2) == 0 and bench.ids() == [0, 1, 2]
    assert not list((bench.root / "_headrace" / "staging" / "merges").rglob("*.parquet"))


def test_a_merge_that_another_job_finishes_and_forgets_meanwhile_is_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path / "table", "parquet")
    late, other = bench.driver(), bench.driver()

    def commit_and_merge(begin: int) -> None:
        for batch in (begin, begin + 1):
            other.commit(batch, bench.files(other, batch, [batch]))
        assert other.merge([DAY], 2)

    commit_and_merge(0)
    todo = [lambda: commit_and_merge(2)]
    get = Records.get

    def gets_late(records: Records, key: str) -> bytes | None:
        if todo and key.startswith("merges/"):
            todo.pop()()
        return get(records, key)

    monkeypatch.setattr(Records, "get", gets_late)
    assert late.merge([DAY], 2) == 0 and bench.ids() == [0, 1, 2, 3]


def when_joined(monkeypatch: pytest.MonkeyPatch, then: Callable[[], bool]) -> None:
    """Between the choice of a merge and its decision, once."""
    todo = [then]

    def joins_late(*given: Any) -> int:
        rows = join(*given)
        if todo:
            assert todo.pop()()
        return rows

    for module in (delta_table, parquet_table):
        monkeypatch.setattr(module, "join", joins_late)


def test_a_merge_gives_way_to_what_others_do_to_a_delta_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path / "table", "delta")
    table = bench.driver()
    for batch in range(3):
        table.commit(batch, bench.files(table, batch, [batch]))
    when_joined(monkeypatch, lambda: Log(str(bench.root)).optimize.compact()["numFilesRemoved"] == 3)
    assert table.merge([DAY], 2) == 0 and bench.ids() == [0, 1, 2]
    table.commit(3, bench.files(table, 3, [3]))
    when_joined(monkeypatch, lambda: Log(str(bench.root)).delete("id = 1")["num_deleted_rows"] == 1)
    assert table.merge([DAY], 2) == 0 and bench.ids() == [0, 2, 3]
    assert table.merge([DAY], 2) == 2 and bench.ids() == [0, 2, 3]
    assert Log(str(bench.root)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert bench.ids() == [0, 2, 3]


def test_files_of_others_in_a_tables_directory_stay_as_they_are(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "table", "parquet")
    table = bench.driver()
    for batch in range(2):
        table.commit(batch, bench.files(table, batch, [batch]))
    precious = [tmp_path / "table" / f"event_date={DAY}" / name for name in ("part-0.parquet", "merged-0.parquet")]
    for file in precious:
        pq.write_table(pa.table({"id": [7], "precious": ["gold"]}), file)
    assert table.merge([DAY], 2) == 2
    assert all(pq.read_table(file, partitioning=None).column_names == ["id", "precious"] for file in precious)
    assert bench.ids() == [0, 1, 7, 7]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_directory_that_is_somebody_elses_is_refused_before_anything_is_begun(tmp_path: Path, format: str) -> None:
    place = tmp_path / "table"
    (place / f"event_date={DAY}").mkdir(parents=True)
    with pytest.raises(AskedWrongly, match=f"has files that no table of ours has, event_date={DAY} for one"):
        lake.run(LakeOptions(topics=("orders",), to=str(place), format=format))
    assert [one.name for one in place.iterdir()] == [f"event_date={DAY}"]


@pytest.mark.parametrize("name", ["_headrace", "_delta_log", ".nfs01"])
def test_a_directory_of_ours_or_of_nobody_is_not_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    place_of(str(tmp_path), "/").refuse_foreign()
    place_of(str(tmp_path / "nowhere"), "/").refuse_foreign()


def test_a_delta_log_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("garbage\n")
    with pytest.raises(PipelineFailed, match=r"the Delta log of .*/table cannot be read: ") as failed:
        Bench(tmp_path / "table", "delta").driver()
    assert "\n" not in str(failed.value)


def test_a_delta_table_of_other_columns_is_refused(tmp_path: Path) -> None:
    Log.create(str(tmp_path / "table"), pa.schema([("x", pa.int64())]))
    with pytest.raises(AskedWrongly, match="is a Delta table with other columns"):
        Bench(tmp_path / "table", "delta").driver()


@pytest.mark.parametrize(
    ("first", "then", "sentence"),
    [
        ("delta", "parquet", "is a Delta table: give --format delta"),
        ("parquet", "delta", "is a table of Parquet files: give --format parquet"),
    ],
)
def test_a_table_does_not_become_one_of_the_other_kind(tmp_path: Path, first: str, then: str, sentence: str) -> None:
    bench = Bench(tmp_path / "table", first)
    table = bench.driver()
    assert table.commit(0, bench.files(table, 0, [1, 2]))
    with pytest.raises(AskedWrongly, match=sentence):
        Bench(tmp_path / "table", then).driver()
    bench.driver()
    assert bench.ids() == [1, 2]
