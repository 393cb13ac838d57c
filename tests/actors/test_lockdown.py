"""The lockdown: what is locked, since when and by whom; repeats change nothing."""

from __future__ import annotations

from typing import Any

from peloton.actors.lockdown import messages as m
from peloton.actors.lockdown.decide import get_locks
from peloton.actors.lockdown.kind import KIND
from peloton.actors.lockdown.state import Lockdown
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Refused


def at(now: float, who: str = "ann") -> At:
    return At(now=now, key=m.LOCKDOWN, who=who)


def ordered(lockdown: Lockdown | None, *names: str, locked: bool, when: At) -> Any:
    return take_turn(KIND, lockdown, message=m.SetLocks(names, locked), at=when)


def test_locks_are_set_and_taken_away() -> None:
    first = ordered(None, m.KILL, m.LAUNCH, locked=True, when=at(1.0))
    assert first.reply == m.LocksSet(1)
    second = ordered(first.state, m.READ, m.KILL, locked=True, when=at(2.0, "bob"))
    assert second.reply == m.LocksSet(2)
    found = get_locks(second.state, m.GetLocks(), at(3.0))
    wanted = (m.Lock(m.KILL, 1.0, "ann"), m.Lock(m.LAUNCH, 1.0, "ann"), m.Lock(m.READ, 2.0, "bob"))
    assert found == m.Locks(wanted, 2)
    assert found.of(m.READ) == wanted[2] and found.of(m.WRITE) is None
    third = ordered(second.state, m.KILL, m.READ, m.LAUNCH, locked=False, when=at(4.0))
    assert third.state == Lockdown((), 3)


def test_a_repeat_changes_nothing() -> None:
    state = ordered(None, m.KILL, locked=True, when=at(1.0)).state
    again = ordered(state, m.KILL, locked=True, when=at(2.0, "bob"))
    assert again.state == state and again.reply == m.LocksSet(1)
    assert ordered(state, m.READ, locked=False, when=at(2.0)).state == state


def test_strange_components_are_refused() -> None:
    strange = ordered(None, "Nonsense", locked=True, when=at(1.0)).reply
    assert isinstance(strange, Refused) and strange.code == m.BAD_COMPONENT
