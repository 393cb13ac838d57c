"""The kind of the runtime that a declaration makes, once nothing is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    Send,
)
from peloton.sdk.kit.calls import CLIENT, CallAnswered, order
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
    deadline = declared.hooks.get("deadline", no_deadline)
    lines = Outlines(
        name,
        declared.limits,
        folds=folds,
        replies={*declared.replies, Refused},
        targets=(name, *declared.sends_to),
        messages=declared.messages,
        dues=declared.dues,
        owes=_owes(declared.hooks),
        deadline=deadline,
    )
    decide = {message: lines.of_messages(each) for message, each in declared.messages.items()}
    absent = {message: lines.of_absent(each, state) for message, each in declared.messages.items()}
    messages = {class_number(message): message for message in declared.messages}
    if "calls" in declared.hooks:
        decide[CallAnswered] = lines.of_messages(_answered(declared.hooks))
        messages[class_number(CallAnswered)] = CallAnswered
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
        deadline=deadline,
        owed=lines.owes,
        messages=messages,
        facts={class_number(fact): fact for fact in declared.facts},
        queries={class_number(query): query for query in declared.queries},
        answers={**replies, class_number(row): row},
        inspect=declared.queries,
        depends=lambda query: OWN_STATE,
        partition=lambda key: key,
        listing=Listing(summary=row),
    )


def _fold(state: type, function: Fold, *, over: Callable[[Any], bool] | None) -> Fold:
    def folded(before: Any, fact: Any) -> Any:
        after = function(state() if before is None else before, fact)
        if not isinstance(after, state):
            text = f"folding {type(fact).__name__} returned a {type(after).__name__}"
            raise TypeError(f"{text}, not a {state.__name__}")
        return None if over is not None and over(after) else after

    return folded


def _owes(hooks: Mapping[str, Callable[..., Any]]) -> Callable[[Any], tuple[Send, ...]]:
    """Return the function of what a state owes: messages, and calls as messages to a client."""
    sends: Callable[..., Any] = hooks.get("owes", _nothing)
    calls: Callable[..., Any] = hooks.get("calls", _nothing)
    return lambda state: (*sends(state), *map(order, calls(state)))


def _nothing(state: Any) -> tuple[Any, ...]:
    return ()


def _answered(hooks: Mapping[str, Callable[..., Any]]) -> Callable[..., Decision]:
    """Return the function of answers, which come again and late, to those that are awaited.

    Only a client of a daemon answers: whoever else says so is not believed.
    """
    calls, function = hooks["calls"], hooks["answered"]

    def answered(state: Any, answer: CallAnswered, at: At) -> Decision:
        awaited = at.sender == CLIENT and any(
            call.id == answer.id and (not call.seen or call.seen != answer.digest)
            for call in calls(state)
        )
        if not awaited:
            return Decision(because=f"call {answer.id} is not awaited any more")
        decision: Decision = function(state, answer, at)
        return decision

    return answered


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
