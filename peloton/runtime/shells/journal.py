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
from peloton.runtime.shells.shell import Driver, Shell
from peloton.runtime.shells.shell_messages import (
    Claim,
    ClaimRefused,
    ClaimTaken,
    Commit,
    Forget,
    Load,
    Loaded,
    Ref,
    Release,
    Released,
    Settle,
    ShellFailed,
    Wake,
    WorkDone,
    send,
)
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

    def handle(self, message: Any) -> None:
        """Gather works; at the end of the grant, one round over them all."""
        if isinstance(message, Commit):
            self._round.append(message)
        elif isinstance(message, Settle):
            self._unclear.append(message)
        elif isinstance(message, Release):
            self._journal.release(message.shard, message.epoch)
            send(message.sender, Released())
        elif isinstance(message, Forget):
            self._journal.drop(message.shard, message.epoch)
        if self.actor_inbox.at_end():
            self._commit()
            self._settle()

    def _commit(self) -> None:
        gathered, self._round = self._round, []
        if gathered:
            answers = self._journal.commit([commit.work for commit in gathered])
            for commit, answer in zip(gathered, answers, strict=True):
                send(commit.sender, WorkDone(answer))

    def _settle(self) -> None:
        gathered, self._unclear = self._unclear, []
        if gathered:
            answers = self._journal.settle([settle.shard for settle in gathered])
            for settle, answer in zip(gathered, answers, strict=True):
                send(settle.sender, WorkDone(answer))

    def failed(self, error: BaseException) -> None:
        """A journal that raises cannot be trusted with more: what it holds in flight is unknown."""
        send(self._root, ShellFailed(self.name, f"{type(error).__name__}: {error}", fatal=True))


class ReaderShell(Shell):
    """Claims, recovery and final states, of the shards that `House.reader_of` gives it."""

    def __init__(self, name: str, driver: Driver, *, journal: Journal, root: Ref) -> None:
        super().__init__(name, driver)
        self._journal = journal
        self._root = root
        self._later: list[Load] = []

    def handle(self, message: Any) -> None:
        """Read what is asked for; an unreachable store is asked again later."""
        if isinstance(message, Claim):
            # A claim for a shell that is no more would only fence the shard's next owner.
            if message.sender.is_alive():
                send(message.sender, self._claim(message.shard))
        elif isinstance(message, Load):
            self._load(message)
        elif isinstance(message, Wake):
            later, self._later = self._later, []
            for load in later:
                self._load(load)

    def failed(self, error: BaseException) -> None:
        """What a read can end with was caught; this is a fault of the program."""
        send(self._root, ShellFailed(self.name, f"{type(error).__name__}: {error}", fatal=True))

    def _claim(self, shard: ShardId) -> ClaimTaken | ClaimRefused:
        try:
            claimed = self._journal.claim(shard, "")
            if not isinstance(claimed, Claimed):
                return ClaimRefused(claimed.text, unreachable=isinstance(claimed, Unclear))
            parts = list(self._journal.read_checkpoint(shard))
            return ClaimTaken(claimed, parts, list(self._journal.read_tail(shard)))
        except Overtaken as error:
            return ClaimRefused(str(error))
        except Unreachable as error:
            return ClaimRefused(str(error), unreachable=True)
        except Damaged as error:
            # Whoever shows this has named the shard already.
            return ClaimRefused(str(error).removeprefix(f"{shard}: "), damaged=True)

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
            send(load.sender, Loaded(rows, troubles))
        if missing:
            self._later.append(load._replace(keys=tuple(missing)))
            self.wake(self.now + READ_AGAIN_S)
