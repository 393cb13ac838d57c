"""The kind of the runtime that a declaration makes, once nothing is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from peloton.runtime.kinds import Kind, Listing, no_deadline, settled
from peloton.runtime.vocabulary import (
    OWN_STATE,
    SETTLED,
    WAITING,
    At,
    Decision,
    Due,
    Key,
    Refused,
    Rest,
)
from peloton.sdk.kit.checking import problems
from peloton.sdk.kit.declaring import ActorKind, GoalTable
from peloton.sdk.kit.limits import Fold, Outlines
from peloton.sdk.kit.values import class_number


class BadKind(Exception):
    """A declaration that cannot work: one line for each mistake, with file and line."""


def build(declared: ActorKind) -> Kind:
    """Return the kind for the runtime. Raises BadKind."""
    wrong = problems(declared)
    if wrong:
        raise BadKind("\n".join(wrong))
    name, state = declared.name, declared.state
    replies = {class_number(cls): cls for cls in declared.replies}
    row = msgspec.defstruct("Row", [("key", Key), ("state", state)], frozen=True)
    over = declared.hooks.get("ends")
    folds = {fact: _fold(state, each, over=over) for fact, each in declared.facts.items()}
    lines = Outlines(
        name,
        declared.limits,
        folds=folds,
        replies={*declared.replies, Refused},
        targets=(name, *declared.sends_to),
    )
    decide = {message: lines.of_messages(each) for message, each in declared.messages.items()}
    absent = {message: _absent(state, each) for message, each in decide.items()}
    if declared.dues:
        decide[Due] = lines.of_messages(_due(declared.dues))
    goals = declared.goals
    return Kind(
        name=name,
        group=name,
        state=state,
        decide=decide,
        absent=absent,
        evolve=folds,
        pursue=settled if goals is None else lines.of_steps(_pursue(goals)),
        deadline=declared.hooks.get("deadline", no_deadline),
        owed=declared.hooks.get("owes", lambda state: ()),
        messages={class_number(message): message for message in declared.messages},
        facts={class_number(fact): fact for fact in declared.facts},
        queries={class_number(query): query for query in declared.queries},
        answers={**replies, class_number(row): row},
        inspect=declared.queries,
        depends=lambda query: OWN_STATE,
        partition=lambda key: key,
        listing=Listing(summary=row),
    )


def _absent(state: type, decide: Callable[..., Decision]) -> Callable[[Any, At], Decision]:
    return lambda message, at: decide(state(), message, at)


def _fold(state: type, function: Fold, *, over: Callable[[Any], bool] | None) -> Fold:
    def folded(before: Any, fact: Any) -> Any:
        after = function(state() if before is None else before, fact)
        return None if over is not None and over(after) else after

    return folded


def _due(dues: dict[str, Callable[..., Decision]]) -> Callable[[Any, Due, At], Decision]:
    return lambda state, due, at: dues[due.name.partition(":")[0]](state, at)


def _pursue(goals: GoalTable) -> Callable[[Any, At], Decision | Rest]:
    def pursue(state: Any, at: At) -> Decision | Rest:
        steps = goals.steps[goals.phase(state)]
        for step in steps:
            taken = step(state, at)
            if taken is not None:
                return taken
        return WAITING if steps else SETTLED

    return pursue
