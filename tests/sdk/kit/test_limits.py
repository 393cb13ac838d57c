"""A turn beyond the limits of its kind, or that makes what was not declared: it has no effect, the
message becomes a dead letter, the actor is quarantined, and another actor of the kind works on."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.runtime.vocabulary import SELF, DeadLettered, Key, Refused, Target
from peloton.sdk.kit import (
    ActorFact,
    ActorKind,
    ActorMessage,
    ActorReply,
    ActorState,
    At,
    Decision,
    Send,
    TurnLimits,
    build,
    key,
)
from tests.toy.bench import Bench

LIMITS = TurnLimits(state_bytes=240, turn_bytes=200, sends=3)
BAD, GOOD = key("sack", "bad"), key("sack", "good")


class Sack(ActorState, frozen=True):
    """So many bytes, how many sacks it owes something, and its deadline."""

    text: str = ""
    owes: int = 0
    wait: tuple[str, float] | None = None


class Fill(ActorMessage, frozen=True):
    text: str = ""
    owes: int = 0
    wait: tuple[str, float] | None = None
    nonce: int = 0  # a repeat of a dead letter is answered with its error


class Misbehave(ActorMessage, frozen=True):
    how: str
    nonce: int = 0


class Filled(ActorFact, frozen=True):
    text: str = ""
    owes: int = 0
    wait: tuple[str, float] | None = None


class Torn(ActorFact, frozen=True):
    """It is folded to something else than a state."""


class Full(ActorReply, frozen=True):
    size: int


class Lost(ActorFact, frozen=True):
    """Nothing folds it."""


class Odd(ActorReply, frozen=True):
    """Nothing declares it."""


class Alien(ActorMessage, frozen=True):
    """Nothing decides it."""


FILL = Fill("a")
WRONG: dict[str, Any] = {
    "fact": Decision((Lost(),)),
    "reply": Decision(reply=Odd()),
    "target": Decision(sends=(Send(key("job", "x"), FILL),)),
    "message": Decision(sends=(Send(SELF, Alien()),)),
    "message of another": Decision(sends=(Send(GOOD, Alien()),)),
    "bytes": Decision(sends=(Send(GOOD, Fill("x" * 180)),)),
    "nothing": None,
    "facts": Decision(Filled("a")),  # type: ignore[arg-type]
    "fold": Decision((Torn(),)),
}


def made() -> ActorKind:
    # Looked up at run time, so that the declaration cannot be refused for them.
    kind = ActorKind("sack", state=Sack, limits=LIMITS)

    @kind.decides(Fill, reply=Full)
    def fill(sack: Sack, message: Fill, at: At) -> Decision:
        fact = Filled(message.text, message.owes, message.wait)
        return Decision((fact,), reply=Full(len(sack.text + message.text)))

    @kind.decides(Misbehave)
    def misbehave(sack: Sack, message: Misbehave, at: At) -> Any:
        if message.how.startswith("sends"):
            to: Target | Key = SELF if message.how.endswith("self") else GOOD
            return Decision(sends=(Send(to, FILL),) * (LIMITS.sends + 1))
        return WRONG[message.how]

    @kind.folds(Filled)
    def filled(sack: Sack, fact: Filled) -> Sack:
        return replace(sack, text=sack.text + fact.text, owes=fact.owes, wait=fact.wait)

    @kind.folds(Torn)
    def torn(sack: Sack, fact: Torn) -> Any:
        return None

    @kind.owes
    def owes(sack: Sack) -> tuple[Send, ...]:
        return (Send(key("sack", "third"), FILL),) * sack.owes

    @kind.deadline
    def wait(sack: Sack) -> tuple[str, float] | None:
        return sack.wait

    @kind.due("rest")
    def rest(sack: Sack, at: At) -> Decision:
        return Decision((Filled(),))

    return kind


KINDS = {"sack": build(made())}
CASES: list[tuple[str, Fill | Misbehave, str]] = [
    ("state_bytes", Fill("x" * 150), "LimitExceeded: sack: state_bytes: 2.., at most 240"),
    ("turn_bytes", Misbehave("bytes"), "LimitExceeded: sack: turn_bytes: 2.., at most 200"),
    ("sends", Misbehave("sends"), "LimitExceeded: sack: sends: 4, at most 3"),
    ("sends to itself", Misbehave("sends to self"), "LimitExceeded: sack: sends: 4, at most 3"),
    ("sends that it owes", Fill(owes=4), "LimitExceeded: sack: sends: 4, at most 3"),
    ("an undeclared fact", Misbehave("fact"), "TypeError: sack: no function folds the fact Lost"),
    ("an undeclared reply", Misbehave("reply"), "TypeError: sack: the reply Odd was not declared"),
    ("an undeclared target", Misbehave("target"),
     "TypeError: sack sends to job/x; declared in `sends_to`: sack"),
    ("an undeclared message", Misbehave("message"),
     "TypeError: sack: no function decides the message Alien"),
    ("an undeclared message to another", Misbehave("message of another"),
     "TypeError: sack: no function decides the message Alien"),
    ("no decision", Misbehave("nothing"), "TypeError: sack: None is no Decision with a tuple of "),
    ("a fact without a tuple", Misbehave("facts"), r"TypeError: sack: Decision\(facts=Filled.* is "
     "no Decision with a tuple of facts"),
    ("a fold that returns nothing", Misbehave("fold"),
     "TypeError: folding Torn returned a NoneType, not a Sack"),
    ("a deadline of no name", Fill(wait=("sleep", 1.0)),
     "TypeError: sack: no function is `due` for the deadline 'sleep'"),
    ("a deadline that never comes", Fill(wait=("rest:1", float("inf"))),
     "ValueError: sack: the deadline 'rest:1' is in inf s"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "message", "says"), CASES, ids=[row[0] for row in CASES])
def test_what_a_turn_may_not_do_hurts_its_actor_alone(
    what: str, message: Fill | Misbehave, says: str
) -> None:
    bench = Bench("sack", sizes={"sack": 1}, kinds=KINDS)
    for actor in (BAD, GOOD):
        bench.send(actor, Fill("y" * 80))
    bench.rest()
    before = bench.shard.population.cells[BAD]

    bench.send(BAD, message, reply_to=1)
    bench.after(5)
    (answer,) = bench.answers()
    assert isinstance(answer, DeadLettered)
    assert re.search(says, answer.text), answer
    assert bench.shard.population.cells[BAD] == before
    assert not bench.taken(), "nothing left, not even to others"

    bench.send(BAD, FILL, reply_to=2)
    bench.rest()
    assert bench.answers() == [Full(81)], "one dead letter does not stop it"
    for number in (3, 4):
        bench.send(BAD, replace(message, nonce=number), reply_to=number)
        bench.after(5)
    bench.answers()
    assert bench.shard.deferred.quarantined

    bench.send(BAD, FILL, reply_to=5)
    bench.send(GOOD, FILL, reply_to=6)
    bench.rest()
    assert Full(81) in bench.answers()
    twin = bench.replay()
    assert {key: twin.population.cells[key].text for key in (BAD, GOOD)} == {
        BAD: "y" * 80 + "a",
        GOOD: "y" * 80 + "a",
    }
    assert {*twin.deferred.quarantined} == {BAD}


def test_what_is_at_the_limits_passes() -> None:
    bench = Bench("sack", sizes={"sack": 1}, kinds=KINDS)
    bench.send(GOOD, Fill(owes=LIMITS.sends, wait=("rest:1", 3.0)), reply_to=1)
    bench.rest()
    assert bench.answers() == [Full(0)]
    assert bench.shard.population.cells[key("sack", "third")].text == "aaa"
    bench.after(4)
    assert bench.shard.population.cells[GOOD].wait is None


def test_limits_may_fall_later_and_recovery_checks_none() -> None:
    bench = Bench("sack", sizes={"sack": 1}, kinds=KINDS)
    bench.send(GOOD, Fill("y" * 80))
    bench.rest()
    lower = made()
    lower.limits = TurnLimits(state_bytes=50)
    after = bench.reopened({"sack": build(lower)})
    assert after.shard.population.cells[GOOD].text == "y" * 80
    after.send(GOOD, Fill("z"), reply_to=1)
    after.after(5)
    (answer,) = after.answers()
    assert "state_bytes" in answer.text  # type: ignore[attr-defined]


def test_a_refusal_needs_no_declaration() -> None:
    kind = made()
    kind.decides(Alien)(lambda sack, message, at: Decision(reply=Refused("NO", "not now")))
    bench = Bench("sack", sizes={"sack": 1}, kinds={"sack": build(kind)})
    bench.send(GOOD, Alien(), reply_to=1)
    bench.rest()
    assert bench.answers() == [Refused("NO", "not now")]
    assert GOOD not in bench.shard.population.cells
