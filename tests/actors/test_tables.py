"""Every kind's tables are total: goals by states, messages received, facts folded.

The tests of each kind show what a step does. docs/goals.md has the step of each pair, so that a
change of a table shows there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from peloton.actors.task.messages import Policy, TaskGoals
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.assembly.kinds import kinds
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.kinds import Kind, no_deadline
from peloton.runtime.vocabulary import At, Due, Key, Pursue
from peloton.settings.daemon import ALONE_SHARDS
from tests.actors.tables import goal_tables, states_and_goals

KINDS = kinds(ALONE_SHARDS)
TABLES = goal_tables()
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def differs(where: str, found: Iterable[object], wanted: Iterable[object]) -> None:
    """Fail where a table lacks a row, or has one too many, and say which."""
    found, wanted = dict.fromkeys(found), dict.fromkeys(wanted)
    lines = [f"{where} lacks {_said(one)}: add a row" for one in wanted if one not in found]
    lines += [f"{where} has {_said(one)}: remove it" for one in found if one not in wanted]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def _said(one: object) -> str:
    return one.__name__ if isinstance(one, type) else str(one)


@pytest.mark.parametrize("title", TABLES)
def test_goal_tables_have_a_step_for_every_pair(title: str) -> None:
    table = TABLES[title]
    states, goals = states_and_goals(table)
    differs(f"the table of {title}", table, states)
    for state, row in table.items():
        differs(f"the table of {title}, state {state},", row, itertools.chain(*goals))
        assert all(row.values()), f"the table of {title}, state {state}: a step is None"


def test_goal_tables_are_found() -> None:
    """Guards the guard: a wrong folder would make every table total."""
    assert {"job", "job/slice", "task", "task, admission", "host, run"} <= TABLES.keys()


@EVERY_KIND
def test_whoever_takes_steps_looks_them_up_in_a_table(kind: Kind) -> None:
    folder, _, module = kind.pursue.__module__.removeprefix("peloton.actors.").rpartition(".")
    if module == "goals" and folder.replace(".", "/") not in TABLES:
        text = f"{folder}/goals.py has no TABLE: name a step for each state and goal, in a table"
        pytest.fail(text, pytrace=False)


@EVERY_KIND
def test_every_message_is_decided(kind: Kind) -> None:
    differs(f"DECIDE of {kind.name}", kind.decide, messages_of(kind))


@EVERY_KIND
def test_only_what_is_decided_is_answered_for_nobody(kind: Kind) -> None:
    assert kind.absent.keys() <= kind.decide.keys()


@EVERY_KIND
def test_every_fact_is_folded(kind: Kind) -> None:
    differs(f"EVOLVE of {kind.name}", kind.evolve, kind.facts.values())


@EVERY_KIND
def test_every_query_is_answered(kind: Kind) -> None:
    differs(f"inspect of {kind.name}", kind.inspect, kind.queries.values())


@EVERY_KIND
def test_what_is_looked_up_is_heard(kind: Kind) -> None:
    assert kind.lookup <= set(kind.messages.values())


@EVERY_KIND
def test_columns_are_written_by_facts_of_the_kind(kind: Kind) -> None:
    crowd = kind.crowd
    if crowd is not None:
        known = set(kind.facts.values())
        assert {*crowd.write, *crowd.per_member, *crowd.archive} <= known
        assert set(crowd.per_member.values()) <= set(crowd.columns)


def messages_of(kind: Kind) -> list[type]:
    """The messages of a kind, and `Due` where it waits for anything by the clock."""
    waits = kind.deadline is not no_deadline or kind.moment is not no_deadline
    return [*kind.messages.values(), *([Due] if waits else [])]


@pytest.mark.parametrize("admission", Admission)
@pytest.mark.parametrize("goal", TaskGoals)
@pytest.mark.parametrize("state", TaskStates)
def test_a_task_comes_to_rest_from_everywhere(
    state: TaskStates, goal: TaskGoals, admission: Admission
) -> None:
    """A goal that is pursued for ever would be a turn that never ends."""
    at = At(now=0.0, key=Key("task/j/0"))
    for failures in (0, 1, 5):
        before = Task(
            goal, state, Policy(max_failures=3), ticket=1, admission=admission, failures=failures
        )
        after = take_turn(KINDS["task"], before, message=Pursue(), at=at).state
        if after is not None:
            again = take_turn(KINDS["task"], after, message=Pursue(), at=at)
            assert not again.facts, "a task at rest writes nothing"
