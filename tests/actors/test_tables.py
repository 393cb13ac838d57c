"""Every kind's tables are total: goals by states, messages received and absent, facts folded.

Must not know what a step does: that is what the tests of each kind are for.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import pytest

from peloton.actors.host import goals as host
from peloton.actors.host import ledger
from peloton.actors.host.inventory import goals as inventory
from peloton.actors.host.state import HostStates
from peloton.actors.job import goals as job
from peloton.actors.job.messages import JobGoals, JobStates
from peloton.actors.job.slice import goals as slice_
from peloton.actors.job.workflow import goals as workflow
from peloton.actors.job.workflow.messages import WorkflowStates
from peloton.actors.respool import goals as respool
from peloton.actors.task import goals as task
from peloton.actors.task.messages import Policy, TaskGoals
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.assembly.kinds import kinds
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.kinds import Kind, no_deadline
from peloton.runtime.vocabulary import At, Due, Key, Pursue
from peloton.settings.daemon import ALONE_SHARDS

KINDS = kinds(ALONE_SHARDS)
TABLES: Mapping[str, tuple[Any, type[enum.Enum], type[enum.Enum]]] = {
    "job": (job.TABLE, JobStates, JobGoals),
    "slice": (slice_.TABLE, slice_.SliceStates, TaskGoals),
    "task": (task.TABLE, TaskStates, TaskGoals),
    "respool": (respool.TABLE, respool.PoolStates, respool.PoolGoals),
    "host": (host.TABLE, HostStates, host.HostGoals),
    "inventory": (inventory.TABLE, inventory.InventoryStates, inventory.InventoryGoals),
}
PAIRS = [
    pytest.param(name, state, goal, id=f"{name}-{state.name}-{goal.name}")
    for name, (_, states, goals) in TABLES.items()
    for state in states
    for goal in goals
]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def test_every_kind_with_steps_of_its_own_has_a_goal_table() -> None:
    assert KINDS.keys() - TABLES.keys() == {
        *("archive", "engine", "lockdown", "lot", "name", "schedule", "version")
    }


@pytest.mark.parametrize(("kind", "state", "goal"), PAIRS)
def test_every_pair_of_state_and_goal_is_named(kind: str, state: Any, goal: Any) -> None:
    assert TABLES[kind][0][state][goal] is not None


@pytest.mark.parametrize("kind", TABLES)
def test_tables_name_nothing_else(kind: str) -> None:
    table, states, goals = TABLES[kind]
    assert set(table) == set(states)
    assert all(set(row) == set(goals) for row in table.values())


INNER: Mapping[str, tuple[Any, list[Any], type[enum.Enum]]] = {
    "admission of a task": (task.ADMISSION_TABLE, [*Admission], task.AdmissionGoals),
    "renewal of a task": (task.RENEWAL_TABLE, [*TaskStates], task.RenewalGoals),
    "workflow": (workflow.TABLE, [*WorkflowStates], workflow.WorkflowGoals),
    "run of a host": (ledger.RUN_TABLE, [None, *ledger.RunPhase], ledger.RunEvent),
}
"""State machines inside of a kind."""


@pytest.mark.parametrize("name", INNER)
def test_inner_tables_are_total_and_name_nothing_else(name: str) -> None:
    table, rows, columns = INNER[name]
    assert list(table) == rows
    assert all(list(row) == list(columns) for row in table.values())


@EVERY_KIND
def test_every_message_is_decided(kind: Kind) -> None:
    assert set(kind.decide) == messages_of(kind)


@EVERY_KIND
def test_every_message_is_answered_for_nobody(kind: Kind) -> None:
    assert set(kind.absent) == messages_of(kind)


@EVERY_KIND
def test_every_fact_is_folded(kind: Kind) -> None:
    assert set(kind.evolve) == set(kind.facts.values())


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


def messages_of(kind: Kind) -> set[type]:
    """The messages of a kind, and `Due` where it waits for anything by the clock."""
    waits = kind.deadline is not no_deadline or kind.moment is not no_deadline
    timed: set[type] = {Due} if waits else set()
    return {*kind.messages.values()} | timed


TASK_STEPS = """
           SUCCEEDED          RUNNING            KILLED             DELETED
WAITING    request_admission  request_admission  withdraw           withdraw
LAUNCHING  wait               wait               kill               kill
LAUNCHED   wait               wait               kill               kill
STARTING   wait               wait               kill               kill
RUNNING    wait               wait               kill               kill
KILLING    wait               wait               wait               wait
SUCCEEDED  release_admission  run_again          release_admission  forget
FAILED     retry              run_again          release_admission  forget
LOST       retry              run_again          release_admission  forget
KILLED     retry              run_again          release_admission  forget
THROTTLED  pause              pause              withdraw           withdraw
HOLDING    wait               wait               kill               kill
HELD       wait               wait               kill               kill
"""
JOB_STEPS = """
             SUCCEEDED  RUNNING  KILLED  DELETED
INITIALIZED  wait       wait     wait    finish_deletion
PENDING      wait       wait     wait    finish_deletion
RUNNING      wait       wait     wait    finish_deletion
SUCCEEDED    settle     wait     settle  finish_deletion
FAILED       settle     wait     settle  finish_deletion
KILLED       settle     wait     settle  finish_deletion
KILLING      wait       wait     wait    finish_deletion
DELETED      settle     wait     settle  finish_deletion
"""
SLICE_STEPS = """
        SUCCEEDED  RUNNING  KILLED  DELETED
ACTIVE  wish       wish     wait    wait
ENDED   settle     settle   settle  wait
EMPTY   wait       wait     wait    forget
"""


@pytest.mark.parametrize(
    ("kind", "drawn"), [("task", TASK_STEPS), ("job", JOB_STEPS), ("slice", SLICE_STEPS)]
)
def test_the_tables_are_as_drawn(kind: str, drawn: str) -> None:
    table = TABLES[kind][0]
    lines = [line.split() for line in drawn.strip("\n").splitlines()]
    head, rows = lines[0], lines[1:]
    steps = {row[0]: dict(zip(head, row[1:], strict=True)) for row in rows}
    found = {
        state.name: {goal.name: step.__name__ for goal, step in row.items()}
        for state, row in table.items()
    }
    assert found == steps


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
