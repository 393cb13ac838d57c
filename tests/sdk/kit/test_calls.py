"""What actors owe is sent when it is first owed, and only a client of a daemon answers calls."""

from __future__ import annotations

import re
from typing import Any

import pytest

from peloton.runtime.vocabulary import DeadLettered, key
from peloton.sdk.kit import (
    ActorFact,
    ActorKind,
    ActorMessage,
    ActorReply,
    ActorState,
    At,
    CallAnswered,
    ClusterCall,
    Decision,
    build,
)
from peloton.sdk.kit.calls import CLIENT, MakeCall
from peloton.sdk.kit.json_form import BadValue, from_json, told_classes
from tests.toy.bench import Bench

ASKER = key("asker", "a")


class Asker(ActorState, frozen=True):
    """Owes its call from the beginning: a new one has the state of all defaults."""

    number: int = 0
    answer: str = ""


class Begin(ActorMessage, frozen=True):
    pass


class Spoil(ActorMessage, frozen=True):
    """Have a fact, a state or a reply that no declaration allows."""

    what: str


class Count(ActorReply, frozen=True):
    number: int


class Began(ActorFact, frozen=True):
    number: int = 1


class Spoiled(ActorFact, frozen=True):
    pass


class WasAnswered(ActorFact, frozen=True):
    answer: str


def asker() -> ActorKind:
    kind = ActorKind("asker", state=Asker)

    @kind.decides(Begin, reply=Count)
    def begin(state: Asker, message: Begin, at: At) -> Decision:
        return Decision((Began(),), reply=Count(1))

    @kind.decides(Spoil, reply=Count)
    def spoil(state: Asker, message: Spoil, at: At) -> Decision:
        wrong: Any = at.now  # a float
        if message.what == "fact":
            return Decision((Began(wrong),))
        if message.what == "state":
            return Decision((Spoiled(),))
        return Decision((Began(),), reply=Count(wrong))

    @kind.folds(Began)
    def began(state: Asker, fact: Began) -> Asker:
        return Asker(number=fact.number)

    @kind.folds(Spoiled)
    def spoiled(state: Asker, fact: Spoiled) -> Asker:
        wrong: Any = "many"
        return Asker(number=wrong)

    @kind.folds(WasAnswered)
    def was_answered(state: Asker, fact: WasAnswered) -> Asker:
        return Asker(number=state.number, answer=fact.answer)

    @kind.calls
    def calls(state: Asker) -> tuple[ClusterCall, ...]:
        return () if state.answer else (ClusterCall("one", "a.Service.Method", {}),)

    @kind.answered
    def answered(state: Asker, answer: CallAnswered, at: At) -> Decision:
        return Decision((WasAnswered(answer.text),))

    return kind


@pytest.fixture
def bench() -> Bench:
    return Bench("asker", 0, sizes={"asker": 1}, kinds={"asker": build(asker())})


def state(bench: Bench) -> Asker | None:
    found: Asker | None = bench.shard.population.cells.get(ASKER)
    return found


def test_a_call_that_a_new_actor_owes_is_made_at_once_and_again_until_it_is_answered(
    bench: Bench,
) -> None:
    bench.send(ASKER, Begin())
    bench.rest()
    first = [each for each in bench.taken() if isinstance(each.message, MakeCall)]
    assert [(each.to, each.message.id) for each in first] == [(CLIENT, "one")]  # type: ignore[attr-defined]
    bench.after(3.0)
    assert any(isinstance(each.message, MakeCall) for each in bench.taken())
    bench.send(ASKER, CallAnswered("one", text="yes"), sender=CLIENT)
    bench.rest()
    assert state(bench) == Asker(number=1, answer="yes")
    bench.taken()
    bench.after(60.0)
    assert not bench.taken()


@pytest.mark.parametrize("sender", [None, key("asker", "b")], ids=["a client", "another actor"])
def test_an_answer_of_anybody_else_is_not_believed(bench: Bench, sender: Any) -> None:
    bench.send(ASKER, Begin())
    bench.send(ASKER, CallAnswered("one", text="forged"), sender=sender)
    bench.rest()
    assert state(bench) == Asker(number=1)


def test_clients_cannot_send_an_answer() -> None:
    classes = told_classes(build(asker()))
    assert CallAnswered not in classes.values()
    with pytest.raises(BadValue, match="'CallAnswered' is none of Begin, Spoil"):
        from_json(classes, "CallAnswered", body=b'{"id": "one"}')


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("fact", r"asker: Began: Expected `int`, got `float` - at `\$.number`"),
        ("state", r"asker: Asker: Expected `int`, got `str` - at `\$.number`"),
        ("reply", r"asker: Count: Expected `int`, got `float` - at `\$.number`"),
    ],
)
def test_what_could_not_be_read_again_is_never_journaled(
    bench: Bench, what: str, text: str
) -> None:
    bench.send(ASKER, Spoil(what), reply_to="it")
    bench.after(120.0)
    (answer,) = [reply.value for reply in bench.replies if reply.reply_to == "it"]
    assert isinstance(answer, DeadLettered)
    assert re.search(text, answer.text), answer.text
    assert state(bench) is None
