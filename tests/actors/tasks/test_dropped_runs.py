"""Single runs whose events are shown to nobody: how many are kept, and which."""

from __future__ import annotations

from typing import Any

from peloton.actors.task import facts as f
from peloton.actors.task.columns import ARCHIVE, WRITE
from peloton.actors.task.state import RUNS_KEPT_MAX, dropped_runs


class Cells:
    """The columns of one member, written as the facts of a crowd are."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def drop(self, run: int, now: float) -> None:
        """The events of a run are dropped at a time."""
        fact = f.EventsDropped(run, alone=True)
        self.values |= ARCHIVE[type(fact)](None, fact, read=self.values.get)
        self.values |= WRITE[type(fact)](fact, now)

    @property
    def kept(self) -> tuple[tuple[int, float], ...]:
        return dropped_runs(self.values.get)


def test_each_run_is_kept_once_with_its_last_time() -> None:
    cells = Cells()
    assert cells.kept == ()
    for run, now in ((3, 1.0), (1, 2.0), (3, 3.0), (3, 4.0)):
        cells.drop(run, now)
    assert cells.kept == ((1, 2.0), (3, 4.0))


def test_no_more_are_kept_than_runs_are() -> None:
    cells = Cells()
    for run in range(1, 40):
        cells.drop(run, float(run))
        cells.drop(1, 99.0)
    assert len(cells.kept) == RUNS_KEPT_MAX + 1
    assert [run for run, _ in cells.kept] == [*range(29, 40)]
    cells.drop(35, 100.0)
    assert (35, 100.0) in cells.kept and len(cells.kept) == RUNS_KEPT_MAX + 1
