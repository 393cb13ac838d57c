"""What a backend tells of the containers of running pods, and how often."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.host.live.container_messages import (
    ContainersNoted,
    ContainersReported,
    RunContainers,
)
from peloton.actors.task.messages import ContainerEnd
from peloton.backends.container_news import ContainerNews
from peloton.backends.unconfirmed import REPEAT_S
from peloton.runtime.vocabulary import key

HOST = key("host", "h")
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


class Told:
    def __init__(self) -> None:
        self.changes: list[tuple[str, RunContainers]] = []
        self.news = ContainerNews(self._tell)

    def _tell(self, host: str, reported: ContainersReported) -> None:
        self.changes += [(host, change) for change in reported.runs]

    def take(self) -> list[tuple[str, int]]:
        """What was told since: run and number."""
        found, self.changes = self.changes, []
        return [(change.run, change.number) for _, change in found]


def noted(run: str, number: int) -> ContainersNoted:
    return ContainersNoted(HOST, (run,), number)


def test_each_step_is_told_at_once_and_again_until_it_is_confirmed() -> None:
    told = Told()
    told.news.moved("h", "r", containers=STEPS[0])
    assert told.take() == [], "nothing has happened"
    assert told.news.wake_at is None
    told.news.due(0.0)
    told.news.moved("h", "r", containers=STEPS[1])
    assert told.changes == [("h", RunContainers("r", 1, STEPS[1]))]
    assert told.take() == [("r", 1)]
    assert told.news.wake_at == REPEAT_S
    told.news.due(REPEAT_S)
    assert told.take() == [], "its answer may be on the way"
    told.news.due(REPEAT_S + 1)
    assert told.take() == []
    told.news.due(2 * REPEAT_S)
    assert told.take() == [("r", 1)]
    told.news.moved("h", "r", containers=STEPS[2])
    told.news.noted(noted("r", 1))
    told.news.due(3 * REPEAT_S)
    told.news.due(4 * REPEAT_S)
    assert told.take() == [("r", 2), ("r", 2)], "the confirmation was of an earlier one"
    told.news.noted(noted("r", 2))
    told.news.due(5 * REPEAT_S)
    told.news.due(6 * REPEAT_S)
    told.news.moved("h", "r", containers=STEPS[2])
    assert told.take() == [], "a list says what is known"


def test_what_is_listed_late_takes_nothing_back() -> None:
    told = Told()
    told.news.moved("h", "r", containers=STEPS[3])
    told.news.moved("h", "r", containers=STEPS[2])
    assert told.take() == [("r", 3)]
    told.news.noted(noted("r", 2))
    told.news.moved("h", "r", containers=STEPS[3])
    assert told.take() == [("r", 3)]


def test_nothing_is_told_of_a_run_that_is_over() -> None:
    told = Told()
    told.news.moved("h", "r", containers=STEPS[3])
    told.take()
    told.news.over("r")
    told.news.over("another")
    told.news.noted(noted("r", 3))
    for look in range(3):
        told.news.due(look * REPEAT_S)
    assert told.take() == []


def test_it_is_looked_at_as_long_as_news_may_come() -> None:
    told = Told()
    told.news.due(0.0)
    assert told.news.wake_at is None
    for what in ("r", HOST):
        told.news.expect(what)
        told.news.due(1.0)
        assert told.news.wake_at == 1.0 + REPEAT_S
        told.news.over(what)
        told.news.due(1.0 + REPEAT_S)
        assert told.news.wake_at is None


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.booleans()), max_size=20))
def test_the_last_step_is_known_in_the_end_whatever_is_lost(
    steps: list[tuple[int, bool, bool]],
) -> None:
    told, known, now = Told(), 0, 0.0
    for step, arrives, answered in [*steps, (6, False, False)]:
        told.news.moved("h", "r", containers=STEPS[step])
        now += REPEAT_S / 2
        told.news.due(now)
        for _, number in told.take():
            known = max(known, number) if arrives else known
            if arrives and answered:
                told.news.noted(noted("r", number))
    for _ in range(3):
        now += REPEAT_S
        told.news.due(now)
        for _, number in told.take():
            known = max(known, number)
            told.news.noted(noted("r", number))
    assert known == 6
    for _ in range(3):
        now += REPEAT_S
        told.news.due(now)
    assert told.take() == []
