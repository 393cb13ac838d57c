"""What the outside saw of one shard's journal: the promises that any history of owners must keep.

Turns what owners read and were told into `Wrong`, as soon as a promise is broken.
"""

from __future__ import annotations

from peloton.runtime.ports import Frame


class Wrong(AssertionError):
    """A promise of the journal is broken."""


class Story:
    """What was acknowledged, what was refused for good, and the longest history anyone read."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, tuple[bytes, int]] = {}  # by position; with the epoch
        self.refused: dict[bytes, None] = {}
        self.history: list[bytes] = []

    def committed(self, frame: Frame, epoch: int) -> None:
        body, _ = self.acknowledged.setdefault(frame.position, (frame.body, epoch))
        if body != frame.body:
            raise Wrong(f"two frames acknowledged at {frame.position}")

    def refuse(self, body: bytes) -> None:
        self.refused[body] = None
        if body in self.history:
            raise Wrong(f"{body!r} is there, and was then reported as failed")

    def loaded(self, history: list[bytes], epoch: int) -> None:
        for position, (body, under) in self.acknowledged.items():
            if under < epoch and history[position - 1 : position] != [body]:
                raise Wrong(f"acknowledged {body!r} is not at {position} in {history}")
        if len(dict.fromkeys(history)) != len(history):
            raise Wrong(f"a frame is there twice: {history}")
        ghosts = [body for body in history if body in self.refused]
        if ghosts:
            raise Wrong(f"reported as failed, yet present: {ghosts}")
        both = min(len(history), len(self.history))
        if history[:both] != self.history[:both]:
            raise Wrong(f"the prefix changed: {self.history} is now {history}")
        self.history = max(history, self.history, key=len)
