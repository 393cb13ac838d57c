"""News of a host's runs, of whatever sort: whose task is told, and who has seen it.

Turns reports into messages to tasks, one for all members with the same change, and their answers
into confirmations. It keeps nothing: a change that gets lost on the way is reported again. Must not
decide anything by what it passes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from peloton.actors.host.holds.foreign_names import is_foreign
from peloton.actors.host.ledger import RunPhase, names_of
from peloton.actors.host.state import Host
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Message, Send


class RunChange(Protocol):
    """What has changed of a run, and the number of this change."""

    @property
    def run(self) -> str: ...
    @property
    def number(self) -> int: ...


class ChangeSeen(Protocol):
    """What tasks answer: they know of the change of this number."""

    @property
    def run(self) -> int: ...
    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=RunChange)


class RunNews(Generic[T]):
    """One sort of news. `told` makes the message to tasks, of a change and the number of their run;
    `noted` that to the backend. Changes of runs in the phases `known` concern their tasks: at once
    in the phases `passed`, in others by a repeat once the run is further."""

    def __init__(
        self,
        told: Callable[[T, int], Message],
        noted: Callable[[Key, tuple[str, ...], int], Message],
        *,
        known: frozenset[RunPhase],
        passed: frozenset[RunPhase],
    ) -> None:
        self._told, self._noted = told, noted
        self._known, self._passed = known, passed

    def reported(self, host: Host, changes: Iterable[T], at: At) -> Decision:
        """Pass changes on; those of runs in other phases, or of no task, concern nobody."""
        told: dict[tuple[Key, Message], int] = {}
        nobody: dict[int, list[str]] = {}
        for change in changes:
            found = host.runs.find(change.run)
            if found is None or found.of.phase not in self._known or is_foreign(found.crowd):
                nobody.setdefault(change.number, []).append(change.run)
            elif found.of.phase in self._passed:
                name = found.crowd, self._told(change, found.of.run)
                told[name] = told.get(name, 0) | 1 << found.member
        sends = [Send(crowd, message, Bits(raw)) for (crowd, message), raw in told.items()]
        for number, runs in nobody.items():
            sends.append(Send(host.backend, self._noted(at.key, tuple(runs), number)))
        return Decision(sends=tuple(sends))

    def seen(self, host: Host, message: ChangeSeen, at: At) -> Decision:
        """Tell the backend that it need not repeat the change."""
        assert at.members is not None and at.sender is not None
        names = names_of(at.sender, at.members.raw, run=message.run)
        noted = self._noted(at.key, tuple(names), message.number)
        return Decision(sends=(Send(host.backend, noted),))
