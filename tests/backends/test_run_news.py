"""What a backend tells of its runs while they go on, and how often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.host.live.live_messages import RunsChanged
from peloton.actors.task.run_messages import ContainerEnd, LiveRun, TaskHealth, steps_of
from peloton.backends.check_progress import Verdict
from peloton.backends.run_news import REPEAT_S, RunNews
from peloton.runtime.vocabulary import key

HOST, OTHER = key("host", "h"), key("host", "i")
WELL, ILL = Verdict(True), Verdict(False)
STEPS = tuple(
    tuple(
        ContainerEnd(
            name, False,
            float(step > 2 * at), float(step > 2 * at + 1), 0 if step > 2 * at + 1 else None,
        )
        for at, name in enumerate(("a", "b", "c"))
    )
    for step in range(7)
)  # fmt: skip
"""Three containers, one after the other, after so many steps."""


def told(news: RunNews, now: float) -> list[tuple[str, int]]:
    """What is told now: run and number."""
    return [(one.run, one.number) for _, changed in news.due(now) for one in changed.runs]


def test_a_change_says_all_that_is_known_of_a_run() -> None:
    news = RunNews()
    news.ready(HOST, "r", ready=False, text="it loads", now=1.0)
    (change,) = news.due(1.0)[0][1].runs
    assert change.live == LiveRun(ready=TaskHealth.UNHEALTHY, unready_text="it loads")
    news.change(HOST, "r", verdict=WELL, text="GET x", now=2.0)
    news.moved(HOST, "r", containers=STEPS[1], now=2.0)
    news.ready(HOST, "r", ready=True, text="GET y", now=3.0)
    (change,) = news.due(3.0)[0][1].runs
    assert change.live == LiveRun(True, "GET x", ready=TaskHealth.HEALTHY, containers=STEPS[1])


class Listener:
    """A task that believes what it was told last, by a way that loses and delays; of containers
    what has come furthest."""

    def __init__(self) -> None:
        self.healthy: bool | None = None
        self.steps = self.number = 0

    def hear(self, changed: RunsChanged) -> None:
        for change in changed.runs:
            self.healthy, self.number = change.live.healthy, change.number
            self.steps = max(self.steps, steps_of(change.live.containers))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 3)), max_size=20))
def test_the_task_comes_to_believe_the_last_change_whatever_is_lost_or_late(
    steps: list[tuple[bool, int, int]],
) -> None:
    news, task, late, now = RunNews(), Listener(), list[RunsChanged](), 0.0
    for healthy, step, fate in steps:
        now += 1.0
        news.change(HOST, "r", verdict=Verdict(healthy), now=now)
        news.moved(HOST, "r", containers=STEPS[step], now=now)
        for _, changed in news.due(now):
            if fate == 0:
                task.hear(changed)
                news.noted(["r"], task.number, now=now)
            elif fate == 1:
                late.append(changed)
            elif fate == 2:
                task.hear(changed)  # and its answer is lost
    for changed in late:  # overtaken by all others
        task.hear(changed)
        news.noted(["r"], task.number, now=now)
    while (wake_at := news.wake_at) is not None:
        for _, changed in news.due(wake_at):
            task.hear(changed)
            news.noted(["r"], task.number, now=wake_at)
    furthest = max((step for _, step, _ in steps), default=0)
    assert not steps or (task.healthy, task.steps) == (steps[-1][0], furthest)


def test_what_nobody_notes_is_told_again_after_a_while_and_not_before() -> None:
    news = RunNews()
    news.change(HOST, "r", verdict=WELL, now=5.0)
    (first,) = told(news, 5.0)
    assert told(news, 5.0 + REPEAT_S - 0.1) == []
    assert news.wake_at == 5.0 + REPEAT_S and told(news, 5.0 + REPEAT_S) == [first]
    news.noted(["r", "unknown"], first[1], now=5.0 + REPEAT_S)
    assert told(news, 1000.0) == [] and news.wake_at is None


def test_a_change_is_told_once_at_a_time_however_often_that_was_set() -> None:
    news = RunNews()
    news.change(HOST, "r", verdict=ILL, now=1.0)
    news.change(HOST, "r", verdict=WELL, now=1.0)
    news.change(OTHER, "s", verdict=WELL, now=1.0)
    (first, second) = told(news, 1.0)
    assert (first[0], second[0]) == ("r", "s")
    for when in (3.0, 3.0, 2.0):
        news.noted(["r"], first[1], now=when)
        news.noted(["r"], 0, now=when)  # the last time counts
    assert [told(news, now) for now in (2.0, 3.0)] == [[first], []]
    assert [host for host, _ in news.due(2.0 + REPEAT_S)] == [OTHER, HOST]


def test_a_later_process_has_higher_numbers() -> None:
    first, second = RunNews(), RunNews()
    for _ in range(5):
        first.change(HOST, "r", verdict=WELL, now=7.0)
    second.change(HOST, "r", verdict=ILL, now=8.0)
    assert told(second, 8.0)[0][1] > told(first, 7.0)[0][1]


def test_containers_that_are_listed_late_or_again_take_nothing_back() -> None:
    news = RunNews()
    for step in (0, 3, 2, 3):
        news.moved(HOST, "r", containers=STEPS[step], now=float(step))
    assert len(told(news, 3.0)) == 1
    news.moved(HOST, "r", containers=STEPS[3], now=3.0)
    assert told(news, 3.0) == []


@pytest.mark.parametrize("step", [0, 3])
def test_of_a_run_that_is_to_end_only_its_containers_are_told(step: int) -> None:
    news = RunNews()
    news.moved(HOST, "r", containers=STEPS[step], now=1.0)
    news.change(HOST, "r", verdict=ILL, now=1.0)
    news.to_end("r")
    news.to_end("unknown")
    found = [one.live for _, changed in news.due(1.0) for one in changed.runs]
    assert found == ([LiveRun(containers=STEPS[step])] if step else [])


def test_nothing_is_told_of_a_run_that_is_over() -> None:
    news = RunNews()
    news.moved(HOST, "r", containers=STEPS[3], now=1.0)
    news.drop("r")
    news.drop("unknown")
    news.noted(["r"], 7, now=1.0)
    assert told(news, 1000.0) == [] and news.wake_at is None
