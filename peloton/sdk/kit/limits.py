"""What one turn of an extension's actor may cost. A turn beyond a limit raises, and has no effect.

The runtime treats it as any turn that raises: it is tried again, then the message becomes a dead
letter, and an actor with several of those is quarantined. Recovery checks nothing here, so limits
may be lowered at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from msgspec import ValidationError, msgpack
from msgspec.structs import replace

from peloton.runtime.kinds import Decide, Kind
from peloton.runtime.vocabulary import SELF, SENDER, At, Decision, Rest, Send, kind_of
from peloton.sdk.kit.calls import CLIENT, MakeCall

Fold = Callable[[Any, Any], Any]
_ENCODE = msgpack.Encoder().encode


class TurnLimits(NamedTuple):
    """The limits of one kind. `turn_s` is processor time of the thread; sizes are as encoded."""

    state_bytes: int = 256 * 1024  # of one actor
    turn_bytes: int = 64 * 1024  # of the facts of one turn, and of what it sends
    sends: int = 100  # of one turn
    turn_s: float = 0.5


LIMITS_MAX = TurnLimits(4 * 1024 * 1024, 1024 * 1024, 10_000, 10.0)
"""Beyond these a turn would hold up its shard, or not fit a frame."""


class LimitExceeded(Exception):
    """A turn exceeded a limit of its kind; the text names kind, limit and size."""


class Outlines(NamedTuple):
    """What the decisions of a kind are held to."""

    kind: str
    limits: TurnLimits
    folds: Mapping[type, Fold]
    replies: Collection[type[Any]]
    targets: Collection[str]  # kinds that may be sent messages
    messages: Collection[type[Any]]
    dues: Collection[str]
    owes: Callable[[Any], tuple[Send, ...]]
    deadline: Callable[[Any], tuple[str, float] | None]

    def check(self, state: Any, decision: Decision, *, absent: bool = False) -> Decision:
        """Return the decision, with the sends of what is owed from now on.

        `absent`: there was no actor, so it owed nothing, whatever the state of a new one owes.
        Raises LimitExceeded, or TypeError for what was not declared.
        """
        if not (isinstance(decision, Decision) and isinstance(decision.facts, tuple)):
            raise TypeError(f"{self.kind}: {decision!r} is no Decision with a tuple of facts")
        for fact in decision.facts:
            if type(fact) not in self.folds:
                raise TypeError(f"{self.kind}: no function folds the fact {type(fact).__name__}")
        reply = decision.reply
        if reply is not None:
            if type(reply) not in self.replies:
                raise TypeError(f"{self.kind}: the reply {type(reply).__name__} was not declared")
            self._as_declared(reply)
        self._may_send(decision.sends)
        if decision.facts:
            decision = self._owing(state, decision, absent=absent)
        made = (decision.facts, [send.message for send in decision.sends], reply)
        self._at_most("turn_bytes", len(_ENCODE(made)), most=self.limits.turn_bytes)
        return decision

    def _owing(self, state: Any, decision: Decision, *, absent: bool) -> Decision:
        """Return the decision with the sends that the state owes after its facts, and not before.

        The runtime repeats what is owed; the first time is that of the turn.
        """
        after = state
        for fact in decision.facts:
            self._as_declared(fact)
            after = self.folds[type(fact)](after, fact)
        if after is None:
            return decision
        self._at_most("state_bytes", self._as_declared(after), most=self.limits.state_bytes)
        self._may_wait(self.deadline(after))
        owed = self.owes(after)
        self._may_send(owed)
        sent = (*(() if absent else self.owes(state)), *decision.sends)
        new = tuple(send for send in owed if send not in sent)
        self._at_most("sends", len(decision.sends) + len(new), most=self.limits.sends)
        return replace(decision, sends=(*decision.sends, *new)) if new else decision

    def _as_declared(self, value: Any) -> int:
        """Return the size of a value as it is stored. Raises TypeError if it could not be read
        again: what fields hold is checked by nobody else, and recovery would stop there."""
        data = _ENCODE(value)
        try:
            msgpack.decode(data, type=type(value))
        except ValidationError as error:
            raise TypeError(f"{self.kind}: {type(value).__name__}: {error}") from error
        return len(data)

    def _at_most(self, limit: str, found: int, *, most: int) -> None:
        if found > most:
            raise LimitExceeded(f"{self.kind}: {limit}: {found}, at most {most}")

    def _may_send(self, sends: tuple[Send, ...]) -> None:
        self._at_most("sends", len(sends), most=self.limits.sends)
        for to, message in ((send.to, send.message) for send in sends):
            if to == CLIENT and type(message) is MakeCall:
                continue
            if to is SENDER:
                continue
            kind = self.kind if to is SELF else kind_of(to)
            if kind not in self.targets:
                there = ", ".join(self.targets)
                raise TypeError(f"{self.kind} sends to {to}; declared in `sends_to`: {there}")
            if kind == self.kind and type(message) not in self.messages:
                text = f"no function decides the message {type(message).__name__}"
                raise TypeError(f"{self.kind}: {text}")

    def _may_wait(self, deadline: tuple[str, float] | None) -> None:
        if deadline is None:
            return
        name, seconds = deadline
        if name.partition(":")[0] not in self.dues:
            raise TypeError(f"{self.kind}: no function is `due` for the deadline {name!r}")
        if not 0 <= seconds < math.inf:
            raise ValueError(f"{self.kind}: the deadline {name!r} is in {seconds} s")

    def of_messages(self, decide: Decide) -> Decide:
        """Return the same function, held to the limits."""

        def limited(state: Any, message: Any, at: At) -> Decision:
            return self.check(state, decide(state, message, at))

        return limited

    def of_absent(self, decide: Decide, state: type) -> Callable[[Any, At], Decision]:
        """Return the function for keys without an actor, held to the limits."""

        def limited(message: Any, at: At) -> Decision:
            new = state()
            return self.check(new, decide(new, message, at), absent=True)

        return limited

    def of_steps(
        self, pursue: Callable[[Any, At], Decision | Rest]
    ) -> Callable[[Any, At], Decision | Rest]:
        """Return the same function, held to the limits."""

        def limited(state: Any, at: At) -> Decision | Rest:
            step = pursue(state, at)
            return step if isinstance(step, Rest) else self.check(state, step)

        return limited


def with_functions(kind: Kind, wrap: Callable[[Any], Any]) -> Kind:
    """Return the kind with each function that a shard calls for a message or a query wrapped."""

    def each(table: Mapping[Any, Any]) -> dict[Any, Any]:
        return {cls: wrap(function) for cls, function in table.items()}

    return replace(
        kind,
        decide=each(kind.decide),
        absent=each(kind.absent),
        inspect=each(kind.inspect),
        pursue=wrap(kind.pursue),
        owed=wrap(kind.owed),
    )
