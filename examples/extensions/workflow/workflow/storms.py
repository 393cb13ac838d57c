"""Storms over workflows: `peloton chaos run --kinds workflow.storms`.

The cluster is a model of what the calls do: a job exists once it was created, and has ended for
good once that was told.
"""

from __future__ import annotations

import json
import random

from peloton.chaos.kinds import KindHistory, KindStorms, StormCommand
from peloton.sdk.kit import ActorMessage, CallAnswered, Key, key
from peloton.sdk.kit.calls import MakeCall
from workflow.kind import (
    CREATE,
    STOP,
    WORKFLOW,
    Cancel,
    Ended,
    Phase,
    Progress,
    Resume,
    Start,
    Started,
    Step,
)

NAMES = ("a", "b")
CALM = (Phase.NEW, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)
FAILING = 0.2


def command(chance: random.Random) -> StormCommand:
    """Draw what a client does next: mostly the start of a drawn graph."""
    names = [f"s{number}" for number in range(chance.randint(1, 6))]
    steps = tuple(
        Step(
            name,
            {"instanceCount": 1},
            tuple(chance.sample(names[:at], chance.randint(0, min(at, 2)))),
            chance.randint(0, 2),
        )
        for at, name in enumerate(names)
    )
    start = Start("/default", steps, chance.choice((0.0, 20.0, 300.0)))
    others: tuple[ActorMessage, ...] = (start, start, Cancel(), Resume())
    return StormCommand(key("workflow", chance.choice(NAMES)), chance.choice(others))


def answer(
    actor: Key, call: MakeCall, history: KindHistory, chance: random.Random
) -> CallAnswered | None:
    """Answer as a cluster that makes jobs; None: the job still runs."""
    request = json.loads(call.request)
    if call.method == CREATE:
        if chance.random() < FAILING / 4:
            return CallAnswered(call.id, "INVALID_ARGUMENT", "no such pool")
        return CallAnswered(call.id, answer={"jobId": request["id"]})
    if call.method == STOP:
        return CallAnswered(call.id, answer={})
    assert created(history, request["jobId"]), f"no such job: {call.id} of {actor} waits for it"
    if chance.random() < 0.3:
        return None
    state = "FAILED" if chance.random() < FAILING else "SUCCEEDED"
    return CallAnswered(call.id, answer={"state": state, "done": True})


def created(history: KindHistory, job: str) -> bool:
    """Return whether a job was made by a call that was answered."""
    return any(
        not found.code and found.answer.get("jobId", {}).get("value") == job
        for found in history.calls.values()
    )


def steps_are_begun_in_order(history: KindHistory) -> None:
    """No step is begun before those it comes after have succeeded."""
    for name, flow in history.of_kind("workflow").items():
        for state in flow.steps.values():
            if state.progress != Progress.WAITING:
                before = [flow.steps[each].progress for each in state.step.after]
                assert all(one == Progress.SUCCEEDED for one in before), (
                    f"out of order: {state.step.name} of {name} is {state.progress}"
                )


def workflows_end(history: KindHistory) -> None:
    """Once it is calm nothing runs, and each is what its steps say."""
    for name, flow in history.of_kind("workflow").items():
        assert flow.phase in CALM, f"no end: {name} is {flow.phase}"
        won = all(state.progress == Progress.SUCCEEDED for state in flow.steps.values())
        assert won == (flow.phase == Phase.SUCCEEDED), f"wrong end: {name} is {flow.phase}"


def each_ends_once(history: KindHistory) -> None:
    """A workflow ends once for each time that it was begun."""
    for last in history.news:
        if not isinstance(last.fact, Ended):
            continue
        ends = [one for one in history.facts if one.key == last.key]
        begun = sum(type(one.fact).__name__ in ("Started", "Resumed") for one in ends)
        ended = sum(isinstance(one.fact, Ended) for one in ends)
        assert ended <= begun, f"ended twice: {last.key}"
        assert any(isinstance(one.fact, Started) for one in ends)


STORMS = KindStorms(
    [WORKFLOW],
    command=command,
    always=[steps_are_begun_in_order, each_ends_once],
    at_end=[workflows_end],
    answer=answer,
    commands_max=12,
)
