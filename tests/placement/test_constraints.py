"""Tables of constraint truths: the original's three values, and the unknown of tasks."""

from __future__ import annotations

import pytest

from peloton.placement.conditions import MATCH, MISMATCH, NOT_APPLICABLE, UNKNOWN
from peloton.placement.constraints import allowance, truths
from peloton.placement.index import HostIndex
from peloton.placement.messages import Constraint, HostSummary, Label, Shape
from peloton.runtime.vocabulary import Key

from .hosts import host, label, res


def both(form: str, *members: Constraint) -> Constraint:
    return Constraint(form, members=members)


YES = label("host", "rack", "a")
NO = label("host", "rack", "z")
EMPTY = both("and")
TASK = label("task", "job", "x", "less", 1)

H = host("h", res(1), labels=(Label("rack", "a"), Label("gen", "1"), Label("gen", "1")))
TELLS = host("h", res(1), labels=H.labels, running=((Label("job", "x"), 2),))


def index(*hosts: HostSummary) -> HostIndex:
    made = HostIndex()
    made.receive(Key("inventory/0"), hosts)
    return made


@pytest.mark.parametrize(
    ("constraint", "truth"),
    [
        (None, NOT_APPLICABLE),
        (YES, MATCH),
        (NO, MISMATCH),
        (EMPTY, NOT_APPLICABLE),
        (both("or"), NOT_APPLICABLE),
        (both("and", YES, EMPTY), MATCH),
        (both("and", EMPTY, NO), MISMATCH),
        (both("and", EMPTY, EMPTY), NOT_APPLICABLE),
        (both("or", NO, EMPTY), MISMATCH),
        (both("or", EMPTY, YES, NO), MATCH),
        (both("or", EMPTY, EMPTY), NOT_APPLICABLE),
        (both("and", both("or", NO, YES), YES), MATCH),
        (TASK, UNKNOWN),
        (both("and", YES, TASK), UNKNOWN),
        (both("and", TASK, NO), MISMATCH),
        (both("or", TASK, YES), MATCH),
        (both("or", TASK, NO), UNKNOWN),
        (label("host", "hostname", "h"), MATCH),
        (label("host", "hostname", "h", "equal", 1), MATCH),
        (label("host", "hostname", "other"), MISMATCH),
        (label("host", "gen", "1", "equal", 2), MATCH),
        (label("host", "gen", "1", "less", 2), MISMATCH),
        (label("host", "gen", "9", "less", 1), MATCH),
        (label("host", "rack", "a", "about", 1), MISMATCH),
        (label("moon", "rack", "a"), MISMATCH),
        (both("xor", YES), MISMATCH),
        (both("xor"), MISMATCH),
    ],
)
def test_truth(constraint: Constraint | None, truth: int) -> None:
    of = index(H)
    assert truths(constraint, of)[of.rows[Key("host/h")]] == truth


@pytest.mark.parametrize(
    ("constraint", "truth"),
    [
        (TASK, MISMATCH),
        (label("task", "job", "x", "equal", 2), MATCH),
        (label("task", "job", "y", "less", 1), MATCH),
        (both("and", YES, label("task", "job", "x", "greater", 1)), MATCH),
    ],
)
def test_truth_of_tasks_once_they_are_told(constraint: Constraint, truth: int) -> None:
    of = index(TELLS)
    assert truths(constraint, of)[of.rows[Key("host/h")]] == truth


X, Y = Label("job", "x"), Label("job", "y")


@pytest.mark.parametrize(
    ("constraint", "labels"),
    [
        (label("task", "job", "x", "less", 1), (X,)),
        (label("task", "job", "x", "less", 3), (X,)),
        (label("task", "job", "x", "less", 8), (X,)),
        (label("task", "job", "x", "less", 8), (X, X)),
        (label("task", "job", "x", "less", 7), (X, X, X)),
        (label("task", "job", "x", "equal", 2), (X,)),
        (label("task", "job", "x", "equal", 3), (X,)),
        (label("task", "job", "x", "greater", 1), (X,)),
        (label("task", "job", "y", "less", 5), (X,)),
        (label("task", "job", "y", "less", 5), (X, Y)),
        (both("or", label("task", "job", "x", "equal", 2), TASK), (X,)),
        (
            both("or", label("task", "job", "x", "less", 4), label("task", "job", "x", "equal", 4)),
            (X,),
        ),
        (
            both(
                "or", label("task", "job", "x", "less", 3), label("task", "job", "x", "greater", 2)
            ),
            (X, Y),
        ),
        (
            both("and", label("task", "job", "x", "less", 9), label("task", "job", "y", "less", 2)),
            (X, X, Y),
        ),
    ],
)
def test_allowance_is_what_counting_one_by_one_gives(
    constraint: Constraint, labels: tuple[Label, ...]
) -> None:
    of = index(TELLS)
    row = of.rows[Key("host/h")]
    allowed = int(allowance(Shape(res(1), constraint=constraint, labels=labels), of)[row])
    counted = 0
    while counted < 20 and truths(constraint, of)[row] >= MATCH:
        for own in labels:
            of.task_labels.change(row, own, by=1)
        counted += 1
    assert min(allowed, 20) == counted


def test_labels_follow_their_host() -> None:
    of = index(H)
    row = of.rows[Key("host/h")]
    assert truths(YES, of)[row] == MATCH
    of.receive(Key("inventory/0"), [host("h", res(1), 2, labels=(Label("rack", "z"),))])
    assert truths(YES, of)[row] == MISMATCH
    assert truths(NO, of)[row] == MATCH
    of.drop([Key("host/h")])
    assert truths(NO, of)[row] == MISMATCH
