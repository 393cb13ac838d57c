"""R14: a message that is delivered twice leaves the same state as once, in every turn of a history.

Turns the tables of kinds into tables that decide each message as before, and then once more, in the
state to which its turn has led: nothing may change then. The second turn is only computed; nothing
of it is kept or sent. Repeated messages of the simulated network meet few of all states, this check
meets every one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.kinds import Kind
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import At, Decision, Due, Pursue

OWN = (Due, Pursue)
"""What an entity is told by its own shard, which never repeats it."""


class TwiceCheck:
    """The kinds of one cluster, and what changed at a second delivery.

    `spared` names the commands of which only the request key tells a repeat from a new one.
    """

    def __init__(self, spared: Callable[[Any], bool] = lambda message: False) -> None:
        self._spared = spared
        self.checked: Counter[str] = Counter()
        self.found: list[str] = []

    def watched(self, kinds: Mapping[str, Kind]) -> dict[str, Kind]:
        """Return the same kinds, each message decided a second time."""
        return {name: self._watched(kind) for name, kind in kinds.items()}

    def step(self) -> None:
        """Raise `Contradiction` if a second delivery changed something."""
        if self.found:
            raise Contradiction(f"R14 {self.found[0]}")

    def _watched(self, kind: Kind) -> Kind:
        def of_state(cls: type, decide: Callable[..., Decision]) -> Callable[..., Decision]:
            def twice(state: Any, message: Any, at: At) -> Decision:
                decision = decide(state, message, at)
                self._again(kind, state, message=message, at=at)
                return decision

            return decide if cls in OWN else twice

        def of_none(cls: type, absent: Callable[..., Decision]) -> Callable[..., Decision]:
            def twice(message: Any, at: At) -> Decision:
                decision = absent(message, at)
                self._again(kind, None, message=message, at=at)
                return decision

            return absent if cls in OWN else twice

        return replace(
            kind,
            decide={cls: of_state(cls, decide) for cls, decide in kind.decide.items()},
            absent={cls: of_none(cls, absent) for cls, absent in kind.absent.items()},
        )

    def _again(self, kind: Kind, state: Any, *, message: Any, at: At) -> None:
        once = attempt(take_turn, kind, state, message=message, at=at)
        if isinstance(once, Failure) or self._spared(message):
            return  # it raises: such a turn changes nothing, and is judged elsewhere
        at = replace(at, notes=once.notes if once.notes is not None else at.notes)
        again = attempt(take_turn, kind, once.state, message=message, at=at)
        name = f"{kind.name} {type(message).__name__}"
        self.checked[name] += 1
        if isinstance(again, Failure):
            self.found.append(f"{name} raises when it comes twice: {again.error}")
        elif again.state != once.state:
            self.found.append(f"{at.key}: {_told(message, once=once, again=again)}")


def _told(message: Any, *, once: TurnOutcome, again: TurnOutcome) -> str:
    def names(outcome: TurnOutcome) -> list[str]:
        return [type(fact).__name__ for fact in outcome.facts]

    text = f"{message!r:.200} wrote {names(once)}, and when it came again {names(again)}"
    return f"{text} because {again.because}"
