"""The example `lease_lock` on one shard: what it answers, in virtual time, across crashes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lease_lock.kind import (
    HELD,
    INVALID,
    LOCK,
    NOT_HELD,
    TTL_S_MAX,
    Acquire,
    Freed,
    Lease,
    Lock,
    Release,
    Released,
    Renew,
)
from msgspec.structs import replace

from peloton.runtime.core.offline.digest import digest
from peloton.runtime.vocabulary import Refused
from peloton.sdk.kit import ActorMessage, GetState, build, key
from tests.toy.bench import Bench

REPORTS = key("lock", "reports")
KINDS = {"lock": build(LOCK)}
STEP_S = 0.1
"""How finely the bench lets time pass."""


class Locks(Bench):
    """A shard of locks, which is checkpointed at each opportunity."""

    def __init__(self) -> None:
        super().__init__("lock", sizes={"lock": 1}, checkpoint_bytes_min=1, kinds=KINDS)

    def ask(self, message: Any) -> Any:
        """The answer, once it is durable."""
        self.send(REPORTS, message, reply_to=1)
        self.rest()
        (answer,) = self.answers()
        return answer

    def lock(self) -> Lock:
        found: Lock = self.shard.population.cells[REPORTS]
        return found

    def crash(self) -> None:
        """The process dies; what is in the journal is folded again."""
        self.shard = self.replay()
        self.rest()


STORY: list[tuple[str, ActorMessage | float | None, Any]] = [
    ("the first one gets it", Acquire("ann", 30.0), Lease(1, 30.0)),
    ("it is not shared", Acquire("bob", 30.0), Refused(HELD, "ann has it, token 1", again=True)),
    ("who has it keeps its token", Acquire("ann", 20.0), Lease(1, 20.0)),
    ("time passes", 19.0, "ann"),
    ("it is renewed for as long", Renew(1), Lease(1, 20.0)),
    ("the first deadline is over", 19.0, "ann"),
    ("a token that was never given", Renew(2), Refused(NOT_HELD, "token 2 does not hold it")),
    ("the daemon dies", None, "ann"),
    ("nobody renewed it", 1.2, ""),
    ("the old lease is over", Renew(1), Refused(NOT_HELD, "token 1 does not hold it")),
    ("so its end changes nothing", Release(1), Released()),
    ("the next one has a higher token", Acquire("bob", 5.0), Lease(2, 5.0)),
    ("an old token frees nothing", Release(1), Released()),
    ("it is still held", Acquire("ann", 5.0), Refused(HELD, "bob has it, token 2", again=True)),
    ("its own frees it", Release(2), Released()),
    ("twice is once", Release(2), Released()),
    ("the daemon dies again", None, ""),
    ("tokens never fall", Acquire("bob", 5.0), Lease(3, 5.0)),
    ("a lease that lapsed while nobody looked", 60.0, ""),
    ("nor then", Acquire("ann", 1.0), Lease(4, 1.0)),
]  # fmt: skip


def test_a_story_of_one_lock() -> None:
    locks = Locks()
    for what, step, expected in STORY:
        if isinstance(step, ActorMessage):
            assert locks.ask(step) == expected, what
            continue
        if step is None:
            locks.crash()
        else:
            locks.after(step)
        assert locks.lock().holder == expected, what
    assert digest(locks.replay()) == digest(locks.replay(checkpoint=False)) == digest(locks.shard)
    assert locks.checkpoint[0] > 0, "there was a checkpoint"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Acquire("", 30.0), "holder"),
        (Acquire("ann", 0.9), "ttl_s"),
        (Acquire("ann", TTL_S_MAX + 1), "ttl_s"),
        (Acquire("ann", float("nan")), "ttl_s"),
    ],
)
def test_a_bad_request_names_its_field(message: Acquire, field: str) -> None:
    locks = Locks()
    answer = locks.ask(message)
    assert (answer.code, answer.field, answer.again) == (INVALID, field, False)
    assert REPORTS not in locks.shard.population.cells


def test_a_lock_that_nobody_ever_had() -> None:
    locks = Locks()
    assert locks.ask(Release(0)) == Released()
    assert locks.ask(Renew(0)) == Refused(NOT_HELD, "token 0 does not hold it")
    assert type(locks.ask(GetState())).__name__ == "Absent"


def test_the_story_says_why_it_was_freed() -> None:
    locks = Locks()
    locks.ask(Acquire("ann", 2.0))
    locks.after(3)
    assert [line.because for line in locks.shard.turns.story.of(REPORTS)] == [
        "it was free",
        "ann did not renew it in 2 s",
    ]


CLIENTS = ("ann", "bob", "cy")
STEPS = st.one_of(
    st.tuples(st.just("acquire"), st.sampled_from(CLIENTS), st.sampled_from((1.0, 2.0, 5.0))),
    st.tuples(st.just("renew"), st.sampled_from(CLIENTS)),
    st.tuples(st.just("release"), st.sampled_from(CLIENTS)),
    st.tuples(st.just("wait"), st.sampled_from((STEP_S, 0.9, 1.0, 3.0))),
    st.tuples(st.just("crash")),
    st.tuples(st.just("lost"), st.sampled_from(CLIENTS)),
)


class Believed:
    """What the clients may believe: each its token, and until when."""

    def __init__(self) -> None:
        self.locks = Locks()
        self.leases: dict[str, tuple[int, float]] = {}
        self.tokens: list[int] = []

    def holding(self) -> list[str]:
        return [name for name, (_, until) in self.leases.items() if self.locks.now < until]

    def acquire(self, who: str, ttl_s: float) -> None:
        others = [name for name in self.holding() if name != who]
        self.keep(who, self.locks.ask(Acquire(who, ttl_s)))
        assert who not in self.holding() or not others, f"{who} and {others}"

    def renew(self, who: str) -> None:
        self.keep(who, self.locks.ask(Renew(self.leases.get(who, (0, 0.0))[0])))

    def release(self, who: str) -> None:
        token, _ = self.leases.pop(who, (0, 0.0))
        assert self.locks.ask(Release(token)) == Released()

    def wait(self, seconds: float) -> None:
        self.locks.after(seconds)

    def crash(self) -> None:
        self.locks.crash()

    def lost(self, who: str) -> None:
        """The daemon dies before the frame is written: nobody is answered."""
        self.locks.send(REPORTS, Acquire(who, 5.0), reply_to=1)
        self.locks.ready()
        self.locks.crash()
        assert not self.locks.answers()

    def keep(self, who: str, answer: Any) -> None:
        if not isinstance(answer, Lease):
            assert answer.code in (HELD, NOT_HELD)
            return
        known = self.leases.get(who, (0, 0.0))[0]
        assert answer.token == known or answer.token > max(self.tokens, default=0)
        self.tokens.append(answer.token)
        self.leases[who] = answer.token, self.locks.now + answer.ttl_s


@settings(max_examples=40)
@given(st.lists(STEPS, max_size=20))
def test_never_two_holders_and_tokens_only_rise(steps: list[tuple[Any, ...]]) -> None:
    believed = Believed()
    for name, *words in steps:
        getattr(believed, name)(*words)
        assert len(believed.holding()) <= 1
        for holder in believed.holding():
            lock = believed.locks.lock()
            assert (lock.holder, lock.token) == (holder, believed.leases[holder][0])
    locks = believed.locks
    assert believed.tokens == sorted(believed.tokens)
    assert digest(locks.replay()) == digest(locks.replay(checkpoint=False)) == digest(locks.shard)


def test_a_lock_that_forgets_its_token_is_noticed() -> None:
    """The property is one: a kind that frees by forgetting gives two clients one token."""
    kind = KINDS["lock"]
    forgets = replace(kind, evolve={**kind.evolve, Freed: lambda lock, fact: Lock()})
    believed = Believed()
    believed.locks.kinds = {"lock": forgets}
    believed.locks.shard = believed.locks.fresh()
    believed.acquire("ann", 5.0)
    believed.release("ann")
    with pytest.raises(AssertionError):
        believed.acquire("bob", 5.0)
