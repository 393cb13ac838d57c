"""The declaration of a kind: its functions by what they are for, and the `Kind` that they make.

    @LOCK.decides(Acquire, reply=Lease)
    def acquire(lock: Lock, message: Acquire, at: At) -> Decision: ...

Nothing is checked while a module declares its kind: `building.py` does that, all at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from peloton.runtime.vocabulary import At, Decision
from peloton.sdk.kit.limits import TurnLimits
from peloton.sdk.kit.values import GetState

F = TypeVar("F", bound=Callable[..., Any])
Step = Callable[[Any, At], Decision | None]
SHARDS = 4


def undeclared(*given: Any) -> Any:
    """Stand for the function of a message, a fact or a query that is not declared yet."""
    raise NotImplementedError


class GoalTable(NamedTuple):
    """A goal table: the phase of a state, and by phase the steps in their order."""

    phase: Callable[[Any], Any]
    steps: Mapping[Any, Sequence[Step]]


class ActorKind:
    """A kind of actors.

    `name` is the first part of their keys, `lock/NAME`, and the group of their shards. `sends_to`
    names other kinds of extensions that its actors send messages to. `shards`: how many a new
    cluster has of it; written once, it never changes.
    """

    def __init__(
        self,
        name: str,
        *,
        state: type[Any],
        shards: int = SHARDS,
        sends_to: Sequence[str] = (),
        limits: TurnLimits = TurnLimits(),  # noqa: B008
    ) -> None:
        self.name, self.state, self.shards, self.limits = name, state, shards, limits
        self.sends_to = sends_to
        self.place = _line_of_caller()
        """Where the kind is declared, as `file:line`."""
        self.messages: dict[type, Callable[..., Any]] = {}
        self.facts: dict[type, Callable[..., Any]] = {}
        self.queries: dict[type, Callable[..., Any]] = {GetState: lambda state, query, at: state}
        self.replies: dict[type, None] = {state: None}
        self.dues: dict[str, Callable[..., Any]] = {}
        self.goals: GoalTable | None = None
        self.hooks: dict[str, Callable[..., Any]] = {}
        self.twice: list[tuple[str, Callable[..., Any]]] = []
        """What was declared twice, and the second function."""

    def decides(self, message: type, *, reply: type | None = None) -> Callable[[F], F]:
        """Declare a function of (state, message, at) → Decision; `reply` is the class it answers.

        An actor that does not exist yet has the state of all defaults. It exists from its first
        fact on.
        """
        return self._declare(self.messages, message, reply=reply)

    def answers(self, query: type, *, reply: type) -> Callable[[F], F]:
        """Declare a function of (state, query, at) → reply."""
        return self._declare(self.queries, query, reply=reply)

    def folds(self, fact: type) -> Callable[[F], F]:
        """Declare a function of (state, fact) → the next state."""
        return self._declare(self.facts, fact)

    def due(self, name: str) -> Callable[[F], F]:
        """Declare a function of (state, at) → Decision, for when a deadline of this name is over.

        Of a name with a colon this is the part before it.
        """
        return self._declare(self.dues, name)

    def deadline(self, function: F) -> F:
        """Declare a function of (state) → (name, seconds), or None.

        The seconds count from when a deadline of this name first applied. A name that differs
        starts again, so put behind a colon what has to change: `lease:7`.
        """
        return self._hook("deadline", function)

    def ends(self, function: F) -> F:
        """Declare a function of (state) → whether the actor is over: it is deleted then."""
        return self._hook("ends", function)

    def owes(self, function: F) -> F:
        """Declare a function of (state) → tuple of Send, of messages that must arrive.

        Each is sent when a state first owes it, and again until a state owes it no more.
        """
        return self._hook("owes", function)

    def calls(self, function: F) -> F:
        """Declare a function of (state) → tuple of ClusterCall: calls to the cluster as its client.

        Each is made when a state first owes it, and again until a state owes it no more.
        """
        return self._hook("calls", function)

    def answered(self, function: F) -> F:
        """Declare a function of (state, CallAnswered, at) → Decision, for calls that are owed.

        It has to journal that the call is not owed any more, or that it has been `seen`.
        """
        return self._hook("answered", function)

    def pursues(self, phase: Callable[[Any], Any], steps: Mapping[Any, Sequence[Step]]) -> None:
        """Declare the goal table: by phase the steps, each of (state, at) → Decision or None.

        After each message the first step that has something to do is taken, and then the next,
        until none has. If the phases are an Enum, each needs a row; `()`: nothing is to be done.
        """
        if self.goals is not None:
            self.twice.append(("pursues", phase))
        self.goals = GoalTable(phase, steps)

    def _declare(
        self, table: dict[Any, Any], of: Any, *, reply: type | None = None
    ) -> Callable[[F], F]:
        table.setdefault(of, undeclared)

        def declared(function: F) -> F:
            if table[of] is not undeclared:
                self.twice.append((getattr(of, "__name__", str(of)), function))
            table[of] = function
            if reply is not None:
                self.replies[reply] = None
            return function

        return declared

    def _hook(self, name: str, function: F) -> F:
        if name in self.hooks:
            self.twice.append((name, function))
        self.hooks[name] = function
        return function


def _line_of_caller() -> str:
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"
