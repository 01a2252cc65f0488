"""What `lake` can be asked, and the one sentence for what it cannot."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.lake_options import LakeOptions
from headrace.pipeline.outcome import AskedWrongly
from headrace.pipeline.place import Place, Records, place_of
from tests.cli.programs import headrace

GOOD: dict[str, Any] = {"topics": ("orders",), "to": "/data/lake"}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"topics": ()}, "no topic is named"),
        ({"topics": ("a", "b", "a")}, "topic a is named twice"),
        ({"format": "orc"}, "--format is parquet or delta, not 'orc'"),
        ({"start": "middle"}, "--from is beginning or end, not 'middle'"),
        ({"dead_letter": "orders"}, "--dead-letter orders is one of the topics that are read"),
        ({"bootstrap": "nowhere"}, "bootstrap 'nowhere' is not host:port"),
        ({"scope": "a b"}, "--scope has 1 to 64 of the characters"),
        ({"scope": "headrace.places"}, "--scope has 1 to 64 of the characters"),
        ({"rows_per_batch": 0}, "--rows-per-batch is 1 at least, not 0"),
        ({"merge_files": 1}, "--merge-files is 0 for never, or 2 at least"),
        ({"avro_header": True}, "--avro-header needs --schema"),
        ({"source": {"startingOffsets": "latest"}}, "--source startingOffsets cannot be given: --from says it"),
        ({"to": "hdfs://host/x"}, "--to cannot be 'hdfs://host/x': give a directory"),
        ({"to": "s3://bucket/x?zone=1"}, "--to has an option 'zone' that s3 does not know"),
        ({"to": "s3://me:secret@bucket/x"}, "credentials do not belong in --to"),
        ({"to": "s3://bucket/x"}, "--checkpoint is missing"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    LakeOptions(**GOOD).check()
    with pytest.raises(AskedWrongly, match=sentence.replace("(", r"\(")) as refused:
        LakeOptions(**{**GOOD, **wrong}).check()
    assert "\n" not in str(refused.value)


def test_a_bad_flag_of_the_command_is_exit_code_2_and_starts_no_spark() -> None:
    given = {"--format": "orc", "--every": "soon", "--conf": "key", "--source": "key", "--file-size": "much"}
    for wrong in given.items():
        done = headrace("pipeline", "lake", "orders", "--to", "/nowhere/table", *wrong)
        assert done.returncode == 2 and wrong[0] in done.said, done
    assert headrace("pipeline", "lake", "orders").returncode == 2
    done = headrace("pipeline", "lake", "a", "b", "a", "--to", "/nowhere/table")
    assert done.returncode == 2 and done.said == "headrace: topic a is named twice"
    done = headrace("pipeline", "verify", "orders", "--piece-size", "1k")
    assert done.returncode == 2 and done.said == "headrace: --piece-size is 65536 at least, not 1024"
    done = headrace("pipeline", "verify", "orders", "--report", "/nowhere/report.json")
    said = "headrace: --report /nowhere/report.json cannot be written: No such file or directory"
    assert done.returncode == 2 and done.said == said


@pytest.mark.parametrize("command", [("lake", "orders", "--to", "/nowhere/table"), ("verify", "orders")])
@pytest.mark.parametrize("name", ["pyspark", "pyarrow", "numba"])
def test_what_is_not_installed_is_one_sentence(command: tuple[str, ...], name: str) -> None:
    program = f"import sys; sys.modules[{name!r}] = None; from headrace.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "pipeline", *command], capture_output=True, text=True, timeout=60
    )
    said = f"headrace: {name} cannot be imported: install headrace[spark,lake]\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_help_teaches_by_example() -> None:
    for command in ("lake", "verify"):
        shown = headrace("pipeline", command, "--help").stdout.decode()
        assert f"headrace pipeline {command} orders" in shown and "--master" in shown


def test_a_place_is_a_directory_or_a_bucket() -> None:
    assert place_of("lake/orders", "/data") == Place("/data/lake/orders", "/data/lake/orders", True)
    assert place_of("file:///a%20b/", "/data").path == "/a b"
    bucket = place_of("s3://lake/orders/?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=r", "/data")
    assert (bucket.path, bucket.delta_uri, bucket.checkpoint) == ("lake/orders", "s3://lake/orders", None)
    assert bucket.delta_options == {
        "AWS_REGION": "r",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.mark.parametrize(
    "same",
    [
        ["s3://lake/orders", "s3://lake/orders/", "s3://lake/orders?region=r", "s3://lake/orders/?endpoint=http://h:1"],
        [
            "lake/orders",
            "./lake/orders/",
            "/data/lake/orders",
            "file:///data/lake//orders",
            "lake/x/../orders",
            "//data/lake/orders",
        ],
    ],
)
def test_a_place_counts_as_one_however_it_is_written(same: list[str]) -> None:
    assert len({place_of(one, "/data").delta_uri for one in same}) == 1


def test_a_relative_place_is_below_the_working_directory_also_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert LakeOptions(("orders",), "lake").place().path == str(tmp_path / "lake")


@pytest.mark.parametrize("name", ["table", "what?region=r", "a b#c"])
def test_a_record_is_written_by_who_comes_first(tmp_path: Path, name: str) -> None:
    records = Records(place_of(str(tmp_path / name), "/"))
    assert records.get("a/b") is None and records.names("a/") == []
    assert records.put("a/b", b"first") == b"first" and records.put("a/b", b"second") == b"first"
    assert records.get("a/b") == b"first" and records.names("a/") == ["a/b"]
    records.delete("a/b", "a/c")
    assert records.get("a/b") is None
    assert [path.name for path in tmp_path.iterdir()] == [name], "it lies beside the table, and nowhere else"
