"""Facts that need no frame of their own: the entries of a round that may wait for the next frame.

To lose a fact of `Kind.lazy` is the same as to lose the message that caused it, which is sent again
because its sender, or the entity itself, owes it until later facts say otherwise. So a round that
made only such facts is withheld: its entries are the first of the next frame, and its messages
leave at once, as in a round without facts. A frame is a commit, and in the life of a small job
every third one would hold nothing else.

A lazy fact must not write a time: the time of its frame is not that of its turn.

Other facts must not be lazy, such as the release of a ticket:

    1. the release is withheld, and the lot's answer leaves
    2. the task journals that it holds no ticket, and owes nothing any more
    3. the lot's shard dies, and its next owner finds the ticket: its resources are never free again

Nobody waits for a withheld fact: a reply to a caller ends the wait, and a reader's query is
answered in a round, with a reply. The time limit only bounds what a recovery has to repeat.
"""

from __future__ import annotations

from peloton.runtime.core.turning.turns import Turns

LAZY_S_MAX = 1.0
LAZY_ROWS_MAX = 64
_SLACK_S = 0.001
"""The shell may wake a shard a little too early: its clock and the shard's differ by an offset, and
their sum is rounded."""


class LazyFacts:
    """The lazy facts of one shard that wait: the entries in its turns."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._since_s: float | None = None

    def __bool__(self) -> bool:
        return self._since_s is not None

    @property
    def next_s(self) -> float | None:
        """When the entries are written at the latest, in seconds since the epoch."""
        return None if self._since_s is None else self._since_s + LAZY_S_MAX

    def may_wait(self) -> bool:
        """Return whether the entries of this round, and those withheld, may wait for the next."""
        turns = self._turns
        if not turns.rows or turns.must_write or turns.outbox.replies:
            return False
        if len(turns.rows) > LAZY_ROWS_MAX:
            return False
        return self._since_s is None or turns.now < self._since_s + LAZY_S_MAX - _SLACK_S

    def wait(self) -> None:
        """Hold the entries of the round that is over."""
        if self._since_s is None:
            self._since_s = self._turns.now

    def end(self) -> None:
        """Forget what waited: all is in a frame."""
        self._since_s = None
