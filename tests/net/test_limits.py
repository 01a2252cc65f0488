"""The memory that requests share, and the gate before the log."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from headrace.net.limits import LogGate, RequestBudget, Waiter


class Line:
    """Stands for the event loop: what was to be called soon."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., None], tuple[int, ...]]] = []

    def call_soon(self, function: Callable[..., None], *arguments: int) -> None:
        self.calls.append((function, arguments))

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for function, arguments in calls:
            function(*arguments)


class Asker:
    def __init__(self) -> None:
        self.owns = 0

    def granted(self, size: int) -> None:
        self.owns += size


def test_who_leaves_the_line_does_not_hold_up_those_behind() -> None:
    line = Line()
    budget = RequestBudget(100, line.call_soon)
    first, second, third = Asker(), Asker(), Asker()
    assert budget.take(50, first)
    assert not budget.take(90, second) and not budget.take(10, third)
    budget.leave(second)
    line.run()
    assert third.owns == 10 and budget.taken == 60 and not budget.scarce


def test_small_frames_do_not_wait_behind_large_ones_that_are_slow_to_come() -> None:
    line = Line()
    budget = RequestBudget(64_000, line.call_soon)
    large, other, small = Asker(), Asker(), Asker()
    assert budget.take(40_000, large)
    assert not budget.take(40_000, other)
    assert budget.take(1_000, small) and budget.scarce
    taken = sum(budget.take(1_000, Asker()) for _ in range(23))
    assert taken == 23 and budget.taken == 64_000
    assert not budget.take(1_000, small)  # not without bound either
    budget.release(24_000)
    budget.release(40_000)
    line.run()
    assert other.owns == 40_000 and small.owns == 1_000 and not budget.scarce


def test_a_frame_that_has_to_be_the_only_one_is_not_overtaken_for_ever() -> None:
    line = Line()
    budget = RequestBudget(64_000, line.call_soon)
    first, huge, small = Asker(), Asker(), Asker()
    assert budget.take(1_000, first)
    assert not budget.take(100_000, huge) and not budget.take(1_000, small)
    budget.release(1_000)
    line.run()
    assert huge.owns == 100_000 and small.owns == 0
    budget.release(100_000)
    line.run()
    assert small.owns == 1_000


def test_held_bytes_count_but_never_lock_everybody_out() -> None:
    line = Line()
    budget = RequestBudget(100, line.call_soon)
    asker = Asker()
    budget.hold(80)
    assert budget.take(90, asker)  # the only frame
    assert not budget.take(1, asker)
    budget.hold(-80)
    line.run()
    assert asker.owns == 1


def test_without_a_bound_nothing_is_refused() -> None:
    budget = RequestBudget(-1, Line().call_soon)
    asker = Asker()
    assert budget.take(2**40, asker)
    assert budget.take(2**40, asker)
    assert not budget.scarce


@given(
    bound=st.integers(1, 50),
    steps=st.lists(
        st.tuples(st.sampled_from(["take", "release", "leave", "hold", "run"]), st.integers(0, 60)), max_size=60
    ),
)
def test_the_bound_is_kept_and_nobody_waits_for_ever(bound: int, steps: list[tuple[str, int]]) -> None:
    line = Line()
    budget = RequestBudget(bound, line.call_soon)
    owned: list[int] = []
    waiting: list[Waiter] = []

    class Waiting:
        def granted(self, size: int) -> None:
            assert self is waiting[0]  # first come, first served
            waiting.pop(0)
            owned.append(size)

    for step, number in steps:
        if step == "take":
            asker = Waiting()
            if budget.take(number + 1, asker):
                assert not waiting
                owned.append(number + 1)
            else:
                waiting.append(asker)
        elif step == "release" and owned:
            budget.release(owned.pop(number % len(owned)))
        elif step == "leave" and waiting:
            line.run()
            if waiting:
                budget.leave(waiting.pop(number % len(waiting)))
        elif step == "hold":
            budget.hold(number - budget.held)
        line.run()
        assert sum(owned) == budget.taken
        assert len(owned) <= 1 or sum(owned) <= bound or budget.held
    while owned:
        budget.release(owned.pop())
        line.run()
    assert not waiting and not budget.scarce


class Frame:
    """A large frame that fills its memory and asks for twice as much, until it is whole."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.owns = 0
        self.waits = False

    def granted(self, size: int) -> None:
        self.owns += size
        self.waits = False

    def go_on(self, budget: RequestBudget) -> None:
        more = min(self.size - self.owns, self.owns or 10)
        take = budget.take_more if self.owns else budget.take
        if take(more, self):
            self.owns += more
        else:
            self.waits = True


@given(
    bound=st.integers(20, 200),
    sizes=st.lists(st.integers(11, 300), min_size=1, max_size=12),
    turns=st.lists(st.tuples(st.integers(0, 11), st.sampled_from(["go on", "go on", "go on", "leave"])), max_size=80),
)
def test_frames_that_grow_are_bounded_and_never_wait_for_each_other(
    bound: int, sizes: list[int], turns: list[tuple[int, str]]
) -> None:
    line = Line()
    budget = RequestBudget(bound, line.call_soon)
    frames = [Frame(size) for size in sizes]
    every = [(index, "go on") for _ in range(400) for index in range(len(sizes))]
    for index, step in [*turns, *every]:
        frame = frames[index % len(frames)]
        if frame.size and step == "leave":
            budget.leave(frame)
            line.run()  # what was granted before it left is given back too
        elif frame.size and not frame.waits:
            if frame.owns < frame.size:
                frame.go_on(budget)
                line.run()
                assert sum(one.owns for one in frames) <= bound + max(sizes)
            if frame.owns < frame.size:
                continue
            budget.is_whole(frame)
        else:
            continue
        budget.release(frame.owns)
        frame.size = frame.owns = 0
        line.run()
    assert [frame.size for frame in frames] == [0] * len(frames)
    assert budget.taken == 0 and not budget.scarce


def test_one_line_of_each_kind_passes_per_interval_and_tells_what_was_swallowed() -> None:
    now = 100.0
    gate = LogGate(lambda: now, interval_s=10)
    assert [gate.admit("a"), gate.admit("a"), gate.admit("b"), gate.admit("a")] == [0, None, 0, None]
    now = 111.0
    assert [gate.admit("a"), gate.admit("a")] == [2, None]
