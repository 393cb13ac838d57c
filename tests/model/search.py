"""Breadth-first search of a model, with the shortest way to whatever is wrong.

Visited states are kept as 64-bit digests only: two states that share one would hide what lies
behind the second, which among a million states happens once in forty million searches.
"""

from __future__ import annotations

import marshal
import time
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

State = tuple[Any, ...]
Move = tuple[Any, ...]


class Model(Protocol):
    """What can be searched. States are nested tuples of ints."""

    wrong: type[Exception]

    def start(self) -> State: ...

    def moves(self, state: State) -> Iterator[Move]:
        """Always the same for the same state, in the same order."""

    def after(self, state: State, move: Move) -> State | None:
        """None if the move changes nothing. Raises `wrong` if a promise is broken."""

    def explain(self, state: State, move: Move) -> str: ...


class Found(NamedTuple):
    """What a search found; `complete` if every state within the bounds was visited."""

    states: int
    steps: int
    depth: int
    seconds: float
    complete: bool
    wrong: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        end = "exhausted" if self.complete else "stopped"
        head = (
            f"{end}: {self.states:,} states, {self.steps:,} steps, "
            f"depth {self.depth}, {self.seconds:.1f} s"
        )
        steps = [f"{number:3}. {text}" for number, text in enumerate(self.trace, 1)]
        return "\n".join([head, *steps, f"WRONG: {self.wrong}"] if self.wrong else [head])


class Visited:
    """Digests of all states, and for each its parent and the number of the move from there."""

    def __init__(self) -> None:
        self.digests: set[int] = set()
        self.parents = array("L")
        self.moves = array("H")

    def add(self, state: State, parent: int, move: int) -> bool:
        """Whether it is new. Version 2 of marshal has no references, so equal is equal bytes."""
        data = blake2b(marshal.dumps(state, 2), digest_size=8).digest()
        digest = int.from_bytes(data, "big")
        if digest in self.digests:
            return False
        self.digests.add(digest)
        self.parents.append(parent)
        self.moves.append(move)
        return True

    def way(self, at: int) -> list[int]:
        """Numbers of the moves from the start to a state."""
        way = []
        while at:
            way.append(self.moves[at])
            at = self.parents[at]
        return way[::-1]


def search(model: Model, *, states_max: int = 2**62) -> Found:
    """Visit all states by distance from the start; stop at the first that is wrong."""
    began, visited, steps, depth = time.perf_counter(), Visited(), 0, 0
    level: list[tuple[int, State]] = [(0, model.start())]
    visited.add(level[0][1], 0, 0)

    def found(wrong: str = "", way: tuple[int, ...] = ()) -> Found:
        seconds, complete = time.perf_counter() - began, not wrong and not level
        count = len(visited.parents)
        return Found(count, steps, depth, seconds, complete, wrong, tuple(_told(model, way)))

    while level and len(visited.parents) < states_max:
        following: list[tuple[int, State]] = []
        for at, state in level:
            for number, move in enumerate(model.moves(state)):
                steps += 1
                try:
                    after = model.after(state, move)
                except model.wrong as wrong:
                    return found(str(wrong), (*visited.way(at), number))
                if after is not None and visited.add(after, at, number):
                    following.append((len(visited.parents) - 1, after))
        level, depth = following, depth + bool(following)
    return found()


def _told(model: Model, way: tuple[int, ...]) -> Iterator[str]:
    """The moves of a way in words, found again by going it."""
    state: State | None = model.start()
    for number in way:
        assert state is not None
        move = list(model.moves(state))[number]
        yield model.explain(state, move)
        try:
            state = model.after(state, move)
        except model.wrong:
            return
