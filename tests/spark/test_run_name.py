"""What is kept of the run that wrote the last batch of a query, in the little room that there is."""

from uuid import UUID

from headrace.core.transactional_id import NAME_CHARS_MAX
from headrace.spark.run_name import RunName, host_name, read_run_name


def run_id(number: int) -> str:
    return str(UUID(int=number))


def test_a_name_is_read_as_it_was_written() -> None:
    name = RunName("run", "host", "0123456789ab", ("11111111", "22222222"))
    assert read_run_name(str(name)) == name
    assert read_run_name(str(name._replace(before=()))) == name._replace(before=())


def test_names_of_others_are_read_as_far_as_they_go() -> None:
    assert read_run_name(None) == RunName("", "")
    assert read_run_name("job") == RunName("job", "")
    assert read_run_name("run@host") == RunName("run", "host")


def test_the_latest_runs_are_known_and_there_is_room_for_three_behind_the_longest_host() -> None:
    name = RunName(run_id(0), host_name("h" * 100), "0123456789ab")
    for number in range(1, 6):
        name = read_run_name(str(RunName(run_id(number), name.host, name.write, name.runs_before(run_id(number)))))
        assert len(str(name)) <= NAME_CHARS_MAX
    assert [name.knows(run_id(number)) for number in range(7)] == [False, False, True, True, True, True, False]
    assert name.runs_before(run_id(5)) == name.before


def test_nobody_was_before_the_first_run() -> None:
    assert read_run_name(None).runs_before("run") == ()
    assert not read_run_name(None).knows("run")
