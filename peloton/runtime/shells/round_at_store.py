"""A round that was handed to the journal, until each of its shards knows its outcome.

Turns the journal's answers, which may come one by one and unclear at first, into one outcome for
each shard: that of its work, or, where it has written no frame, that of the frames of the others.
No shard is told anything before the frames are decided.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Protocol

from peloton.runtime.ports import Answer, Committed, RoundRefused, ShardId, Unclear, Work
from peloton.runtime.shells.shell_messages import Ref, RoundLost, send


class RoundShard(Protocol):
    """The operations that a round needs of the shell of a shard."""

    shard: ShardId

    @property
    def ref(self) -> Ref:
        """The shell's address, under which the journal's answers find it and no successor."""

    def close_frame(self) -> Work | None:
        """Take no more turns; return what the journal has to write, if anything."""

    def done(self, answer: Answer, *, had_turns: bool) -> None:
        """Take the outcome of the shard's work, or, without work, of the round; it is not Unclear.

        Without a turn the shard had got messages of the round, and may be in the one before, too.
        """

    def wake_soon(self) -> None:
        """Take turns at the next grant."""

    def failed(self, error: BaseException) -> None:
        """Handle an exception in closing the frame, or in what follows its outcome."""

    def unclear(self, text: str, *, full: bool = False) -> None:
        """Note an unknown outcome, which will be settled. `full`: once the store has room."""

    def give_up(self, text: str, *, unclear: bool = False) -> None:
        """End the shard: its memory is ahead of the journal, or may be."""


def lose(services: Iterable[Ref]) -> None:
    """Tell services that the messages they got may never have happened."""
    for ref in services:
        send(ref, RoundLost())


class RoundAtStore:
    """A round at the store."""

    def __init__(
        self,
        shards: Mapping[Ref, RoundShard],
        works: Mapping[Ref, Work],
        *,
        told: Iterable[Ref],
        untouched: Container[Ref] = (),
    ) -> None:
        self.works = works
        self._untouched = untouched
        self.shards = dict(shards)  # that do not know their outcome
        self._told = (*told,)  # services
        self._frames = [ref for ref, work in works.items() if work.frame is not None]
        self._outcome: Answer | None = None if self._frames else Committed()  # of the frames
        self._final: dict[Ref, Answer] = {}
        self._is_unclear = False  # the frames have to be settled
        self.doomed: list[Ref] = []
        """Who is being told that its work failed, and why, so nobody else is to tell it."""

    @property
    def is_decided(self) -> bool:
        """Whether it is known that the round's frames are committed, or that they never will be."""
        return self._outcome is not None

    def answered(self, answers: Mapping[Ref, Answer]) -> None:
        """Tell the shards what is final by these answers and those before."""
        for ref in self.works:
            answer = answers.get(ref)
            if isinstance(answer, Unclear):
                self._is_unclear = self._is_unclear or ref in self._frames
            elif answer is not None:
                self._final[ref] = answer
        if self._outcome is None:
            known = [self._final[ref] for ref in self._frames if ref in self._final]
            committed = (each for each in known if isinstance(each, Committed))
            self._outcome = next(committed, known[0] if known else None)
        if self._outcome is None:
            return
        if not isinstance(self._outcome, Committed):
            self.forget()
        answered = ((ref, self._answer_to(ref, self._outcome)) for ref in self.shards)
        told = {ref: answer for ref, answer in answered if answer is not None}
        self.doomed = [ref for ref, answer in told.items() if not isinstance(answer, Committed)]
        for ref, answer in told.items():
            shard = self.shards.pop(ref, None)
            if shard is not None:
                _tell(shard, answer, had_turns=ref not in self._untouched)
        self.doomed = []

    def forget(self) -> None:
        """Tell the round's services that their messages may never have happened."""
        told, self._told = self._told, ()
        lose(told)

    def is_hopeless(self, asked: Container[Ref]) -> bool:
        """Return whether nobody is left whose frame could be settled."""
        left = (ref in self.shards or ref in asked for ref in self._frames)
        return self._outcome is None and self._is_unclear and not any(left)

    def _answer_to(self, ref: Ref, outcome: Answer) -> Answer | None:
        """Return the outcome of one shard; without a frame that of the others' frames."""
        if ref not in self._frames and not isinstance(outcome, Committed):
            return RoundRefused(outcome.text)
        return self._final.get(ref) if ref in self.works else outcome


def _tell(shard: RoundShard, answer: Answer, *, had_turns: bool) -> None:
    try:
        shard.done(answer, had_turns=had_turns)
    except Exception as error:
        # As when a turn of it raises. Its frame is decided, so it ends with those alone that it
        # has told more since.
        shard.failed(error)
