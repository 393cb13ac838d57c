"""The shells that wait for the store: one commits, a few claim and read.

The journal shell commits the rounds of its daemon (`round.py`) in their order. Reads have shells of
their own, because a slow read must not delay a commit; there are several, so that a takeover of
many shards claims and reads in parallel. None of them may retry by itself, except to read ended
rows: only the shard knows for how long that makes sense.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
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
from peloton.runtime.shells.features import LevelReader
from peloton.runtime.shells.shell import Driver, LastingShell, begin_shell
from peloton.runtime.shells.shell_messages import (
    Claim,
    ClaimRefused,
    ClaimTaken,
    Commit,
    DropClaim,
    EpochObeyed,
    Load,
    Loaded,
    Ref,
    Release,
    Released,
    Settle,
    Wake,
    WorkDone,
    send,
)
from peloton.runtime.vocabulary import Key, kind_of

_LOG = logging.getLogger("peloton.journal")
READ_AGAIN_S = 1.0
READERS = 4
"""Claims under way at once. Each is a sequence of a few round trips, and a store handles several at
once, so a takeover of many shards would take longer with fewer."""


class JournalShell(LastingShell):
    """Makes all writes but claims, on one thread."""

    def __init__(self, driver: Driver, *, journal: Journal, root: Ref) -> None:
        super().__init__("journal", driver, root=root)
        self._journal = journal

    def handle(self, message: Any) -> None:
        """Commit, settle or let go."""
        if isinstance(message, Commit):
            answers = self._journal.commit([*message.works.values()])
            send(message.sender, WorkDone(dict(zip(message.works, answers, strict=True))))
        elif isinstance(message, Settle):
            self.driver.about_to_wait()  # perhaps for time-outs: not with what is committed
            answers = self._journal.settle([*message.shards.values()])
            send(message.sender, WorkDone(dict(zip(message.shards, answers, strict=True))))
        elif isinstance(message, Release):
            self._journal.release(message.shard, message.epoch)
            send(message.sender, Released())
        elif isinstance(message, DropClaim):
            self._journal.drop(message.shard, message.epoch)


class ReaderShell(LastingShell):
    """Claims, recovers and reads ended rows of its shards (see `DaemonContext.reader_of`)."""

    def __init__(self, name: str, driver: Driver, *, level: LevelReader, root: Ref) -> None:
        super().__init__(name, driver, root=root)
        self._level = level
        self._journal = level.journal
        self._retries: list[Load] = []
        self._claims: dict[ShardId, tuple[Ref, int]] = {}  # the last of each shard, with its epoch
        self._above: dict[ShardId, int] = {}

    def handle(self, message: Any) -> None:
        """Claim or read; ended rows that cannot be read because the store is away are retried."""
        if isinstance(message, Claim):
            # A claim for a shell that has ended would only fence the next owner of the shard.
            if message.sender.is_alive():
                send(message.sender, self._claim(message))
        elif isinstance(message, EpochObeyed):
            self._seen(message)
        elif isinstance(message, Load):
            self._load(message)
        elif isinstance(message, Wake):
            retries, self._retries = self._retries, []
            for load in retries:
                self._load(load)

    def _seen(self, seen: EpochObeyed) -> None:
        """Refuse a claim below an epoch that was obeyed.

        Either another daemon has claimed the shard since, and the next claim goes by the rules of
        ownership; or the journal was restored from a backup, and all claims would be refused until
        one is above that epoch.
        """
        shard = seen.shard
        sender, epoch = self._claims.get(shard, (None, seen.epoch))
        self._above[shard] = max(seen.epoch, self._above.get(shard, 0))
        if sender is not None and epoch < seen.epoch:
            text = (
                f"epoch {seen.epoch} was obeyed before, and this claim is epoch {epoch}: another "
                "daemon owns the shard, or the journal was restored from a backup"
            )
            _LOG.warning("%s: %s; it is claimed again", shard, text)
            send(sender, ClaimRefused(text))

    def _claim(self, message: Claim) -> ClaimTaken | ClaimRefused:
        shard = message.shard
        try:
            claimed = self._journal.claim(shard, "", above=self._above.get(shard, 0))
            if not isinstance(claimed, Claimed):
                return ClaimRefused(claimed.text, unreachable=isinstance(claimed, Unclear))
            self._claims[shard] = message.sender, claimed.epoch
            self._above.pop(shard, None)
            # Not before the claim: until it the last owner may read a raised level and write by it.
            self._level.read()
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


def begin_readers(
    driver: Callable[[str], Driver], level: LevelReader, *, root: Ref
) -> tuple[Ref, ...]:
    """Start the readers, each with a thread of its own."""
    names = [f"reader-{number}" for number in range(READERS)]
    return tuple(
        begin_shell(ReaderShell(name, driver(name), level=level, root=root)) for name in names
    )
