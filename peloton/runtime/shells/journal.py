"""The shells that wait for the store: one commits, a few claim and read.

The journal gathers the works of all shards that are ready into one round; while a round is under
way the next gathers, so the store's own pace makes the batch. The readers are apart, because a
slow read must not hold up a commit, and several, because who takes over many shards would claim
and read one after the other. None of them may try again by itself (only the shard knows for how
long that makes sense) or look into a body.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.ports import (
    Claimed,
    Damaged,
    EndedRow,
    Journal,
    JournalError,
    Overtaken,
    ShardId,
    Unclear,
    Unreachable,
)
from peloton.runtime.shells.letters import (
    Broke,
    Claim,
    Commit,
    Done,
    Forget,
    Load,
    Loaded,
    NotTaken,
    Ref,
    Release,
    Released,
    Settle,
    Taken,
    Wake,
    tell,
)
from peloton.runtime.shells.shell import Driver, Shell
from peloton.runtime.vocabulary import Key, kind_of

READ_AGAIN_S = 1.0


class JournalShell(Shell):
    """Everything that writes, on one thread."""

    def __init__(self, driver: Driver, *, journal: Journal, root: Ref) -> None:
        super().__init__("journal", driver)
        self._journal = journal
        self._root = root
        self._round: list[Commit] = []
        self._unclear: list[Settle] = []

    def handle(self, letter: Any) -> None:
        """Gather works; at the end of the grant, one round over them all."""
        if isinstance(letter, Commit):
            self._round.append(letter)
        elif isinstance(letter, Settle):
            self._unclear.append(letter)
        elif isinstance(letter, Release):
            self._journal.release(letter.shard, letter.epoch)
            tell(letter.sender, Released())
        elif isinstance(letter, Forget):
            self._journal.drop(letter.shard, letter.epoch)
        if self.actor_inbox.at_end():
            self._commit()
            self._settle()

    def _commit(self) -> None:
        gathered, self._round = self._round, []
        if gathered:
            answers = self._journal.commit([commit.work for commit in gathered])
            for commit, answer in zip(gathered, answers, strict=True):
                tell(commit.sender, Done(answer))

    def _settle(self) -> None:
        gathered, self._unclear = self._unclear, []
        if gathered:
            answers = self._journal.settle([settle.shard for settle in gathered])
            for settle, answer in zip(gathered, answers, strict=True):
                tell(settle.sender, Done(answer))

    def failed(self, error: BaseException) -> None:
        """A journal that raises cannot be trusted with more: what it holds in flight is unknown."""
        tell(self._root, Broke(self.name, f"{type(error).__name__}: {error}", fatal=True))


class ReaderShell(Shell):
    """Claims, recovery and final states, of the shards that `House.reader_of` gives it."""

    def __init__(self, name: str, driver: Driver, *, journal: Journal, root: Ref) -> None:
        super().__init__(name, driver)
        self._journal = journal
        self._root = root
        self._later: list[Load] = []

    def handle(self, letter: Any) -> None:
        """Read what is asked for; an unreachable store is asked again later."""
        if isinstance(letter, Claim):
            # A claim for a shell that is no more would only fence the shard's next owner.
            if letter.sender.is_alive():
                tell(letter.sender, self._claim(letter.shard))
        elif isinstance(letter, Load):
            self._load(letter)
        elif isinstance(letter, Wake):
            later, self._later = self._later, []
            for load in later:
                self._load(load)

    def failed(self, error: BaseException) -> None:
        """What a read can end with was caught; this is a fault of the program."""
        tell(self._root, Broke(self.name, f"{type(error).__name__}: {error}", fatal=True))

    def _claim(self, shard: ShardId) -> Taken | NotTaken:
        try:
            claimed = self._journal.claim(shard, "")
            if not isinstance(claimed, Claimed):
                return NotTaken(claimed.text, unreachable=isinstance(claimed, Unclear))
            parts = list(self._journal.read_checkpoint(shard))
            return Taken(claimed, parts, list(self._journal.read_tail(shard)))
        except Overtaken as error:
            return NotTaken(str(error))
        except Unreachable as error:
            return NotTaken(str(error), unreachable=True)
        except Damaged as error:
            # Whoever shows this has named the shard already.
            return NotTaken(str(error).removeprefix(f"{shard}: "), damaged=True)

    def _load(self, load: Load) -> None:
        rows: list[tuple[Key, EndedRow | None]] = []
        missing: list[Key] = []
        troubles: list[tuple[Key, str]] = []
        for key in load.keys:
            try:
                row = self._journal.read_ended(load.shard, kind=kind_of(key), key=key)
                rows.append((key, row))
            except Unreachable:
                missing.append(key)
            except JournalError as error:
                troubles.append((key, f"{type(error).__name__}: {error}"))
        if rows or troubles:
            tell(load.sender, Loaded(rows, troubles))
        if missing:
            self._later.append(load._replace(keys=tuple(missing)))
            self.wake(self.now + READ_AGAIN_S)
