"""The shells that wait for the store: one or two commit, a few claim and read.

The journal shell gathers the works of all shards that are ready into one round. While a round is
under way the next one gathers, so the latency of the store sets the batch size. A store whose
commits have two halves has a shell for each: rows of the next round are written while registers of
the last one move, and all rounds whose rows are there share the next move. Reads have shells
of their own, because a slow read must not delay a commit; there are several, so that a takeover of
many shards claims and reads in parallel. None of them may retry by itself (only the shard knows
for how long that makes sense), except to read ended rows, nor decode a body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from peloton.runtime.ports import (
    Answer,
    Claimed,
    Damaged,
    EndedRow,
    Journal,
    JournalError,
    Overtaken,
    ShardId,
    Unclear,
    Unreachable,
    Work,
)
from peloton.runtime.shells.shell import Driver, Shell
from peloton.runtime.shells.shell_messages import (
    Claim,
    ClaimRefused,
    ClaimTaken,
    Commit,
    DropClaim,
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


@runtime_checkable
class StagedJournal(Journal, Protocol):
    """A journal whose commits have two halves, which two threads may call at the same time."""

    def begin(self, works: Sequence[Work]) -> Any:
        """Write what may be written before a frame exists; returns what `finish` needs."""

    def finish(self, rounds: Sequence[Any]) -> list[list[Answer]]:
        """Do the rest of these rounds; the answers of each, in the order of its works."""


class Finish(NamedTuple):
    """A round whose first half is done, and who waits for its answers."""

    begun: Any
    senders: list[Ref]


class JournalShell(Shell):
    """All writes but claims, on one thread."""

    def __init__(
        self, driver: Driver, *, journal: Journal, root: Ref, registers: Ref | None = None
    ) -> None:
        super().__init__("journal", driver)
        self._journal = journal
        self._root = root
        self._registers = registers
        self._round: list[Commit] = []
        self._unclear: list[Settle] = []

    def handle(self, message: Any) -> None:
        """Gather works; at the end of the grant, commit all of them in one round."""
        if isinstance(message, Commit):
            self._round.append(message)
        elif isinstance(message, Settle):
            self._unclear.append(message)
        elif isinstance(message, Release):
            self._journal.release(message.shard, message.epoch)
            send(message.sender, Released())
        elif isinstance(message, DropClaim):
            self._journal.drop(message.shard, message.epoch)
        if self.actor_inbox.at_end():
            self._commit()
            self._settle()

    def _commit(self) -> None:
        batch, self._round = self._round, []
        works = [commit.work for commit in batch]
        if works and self._registers is not None and isinstance(self._journal, StagedJournal):
            begun = self._journal.begin(works)
            send(self._registers, Finish(begun, [commit.sender for commit in batch]))
        elif works:
            for commit, answer in zip(batch, self._journal.commit(works), strict=True):
                send(commit.sender, WorkDone(answer))

    def _settle(self) -> None:
        batch, self._unclear = self._unclear, []
        if batch:
            answers = self._journal.settle([settle.shard for settle in batch])
            for settle, answer in zip(batch, answers, strict=True):
                send(settle.sender, WorkDone(answer))

    def failed(self, error: BaseException) -> None:
        """End the daemon: after an exception the state of the writes in flight is unknown."""
        send(self._root, ShellFailed(self.name, f"{type(error).__name__}: {error}", fatal=True))


class RegisterShell(Shell):
    """The second half of commits, on a thread of its own."""

    def __init__(self, driver: Driver, *, journal: StagedJournal, root: Ref) -> None:
        super().__init__("registers", driver)
        self._journal = journal
        self._root = root
        self._rounds: list[Finish] = []

    def handle(self, message: Any) -> None:
        """Gather rounds; at the end of the grant, finish all of them together."""
        if isinstance(message, Finish):
            self._rounds.append(message)
        if self._rounds and self.actor_inbox.at_end():
            rounds, self._rounds = self._rounds, []
            answers = self._journal.finish([each.begun for each in rounds])
            for each, some in zip(rounds, answers, strict=True):
                for sender, answer in zip(each.senders, some, strict=True):
                    send(sender, WorkDone(answer))

    def failed(self, error: BaseException) -> None:
        """End the daemon, as the journal shell does."""
        send(self._root, ShellFailed(self.name, f"{type(error).__name__}: {error}", fatal=True))


class ReaderShell(Shell):
    """Claims, recovers and reads ended rows of its shards (see `DaemonContext.reader_of`)."""

    def __init__(self, name: str, driver: Driver, *, journal: Journal, root: Ref) -> None:
        super().__init__(name, driver)
        self._journal = journal
        self._root = root
        self._retries: list[Load] = []

    def handle(self, message: Any) -> None:
        """Claim or read; ended rows that cannot be read because the store is away are retried."""
        if isinstance(message, Claim):
            # A claim for a shell that has ended would only fence the next owner of the shard.
            if message.sender.is_alive():
                send(message.sender, self._claim(message.shard))
        elif isinstance(message, Load):
            self._load(message)
        elif isinstance(message, Wake):
            retries, self._retries = self._retries, []
            for load in retries:
                self._load(load)

    def failed(self, error: BaseException) -> None:
        """End the daemon: all expected errors of a read are caught, so this is a bug."""
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
            # Texts that show this reason name the shard already.
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
            self._retries.append(load._replace(keys=tuple(missing)))
            self.wake(self.now + READ_AGAIN_S)
