"""A stage for single shells: real shells on the test's own thread, and desks for those around them.

A `Desk` is a shell that keeps what it is sent, so that the test answers in its place, when it
wants. Only final states are read by themselves. Time stands still but for `after`.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.ports import Answer, Claimed, EndedRow, ShardId, Work
from peloton.runtime.shells.daemon_context import DaemonContext, DaemonLimits
from peloton.runtime.shells.goals import Goals
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.round import RoundShell
from peloton.runtime.shells.shard import ShardShell
from peloton.runtime.shells.shell import Shell
from peloton.runtime.shells.shell_messages import (
    WAKE,
    ClaimTaken,
    Commit,
    Load,
    Loaded,
    Mail,
    WorkDone,
    send,
)
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.simulation.stepper import VirtualClock
from peloton.runtime.vocabulary import Key, Message, key, kind_of
from tests.toy.hooked_rows import HookedRows
from tests.toy.kinds import KINDS, SIZES

LETTERS_MAX = 1000
NOTE = key("note", "x")


class HandDriver:
    """Runs every shell that has mail, in the order in which they got it, until all are quiet."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.wakes: dict[Shell, float] = {}
        self.broke: list[str] = []
        self.paused: tuple[Shell, ...] = ()
        """They get no turns."""
        self._ready: list[Shell] = []

    @property
    def busy(self) -> bool:
        """Whether another shell has mail."""
        return bool(self._ready)

    def attach(self, shell: Shell) -> None:
        """The shell begins."""

    def mail_waiting(self, shell: Shell) -> None:
        """The shell has mail."""
        if shell not in self._ready:
            self._ready.append(shell)

    def wake(self, shell: Shell, at_s: float) -> None:
        """One moment per shell, the newest."""
        self.wakes[shell] = at_s

    def about_to_wait(self) -> None:
        """Nobody waits here."""

    def broken(self, text: str) -> None:
        """A shell failed while it failed."""
        self.broke.append(text)

    def run(self) -> None:
        """At this very moment; time does not pass."""
        while any(shell not in self.paused for shell in self._ready):
            shell = self._ready.pop(0)
            if shell in self.paused:
                self._ready.append(shell)
            elif not shell.actor_stopped.is_set():
                shell.grant(LETTERS_MAX)

    def after(self, seconds: float) -> None:
        """Time passes, and who wants to be woken by then is."""
        self.clock.now_s += seconds
        for shell, at_s in [*self.wakes.items()]:
            if at_s <= self.clock.now_s:
                del self.wakes[shell]
                send(shell.ref, WAKE)
        self.run()


class Desk(Shell):
    """Keeps what it is sent."""

    def __init__(self, name: str, driver: HandDriver) -> None:
        super().__init__(name, driver)
        self.letters: list[Any] = []

    def handle(self, message: Any) -> None:
        self.letters.append(message)

    def failed(self, error: BaseException) -> None:
        raise error

    def taken(self) -> list[Any]:
        """What has come since the last call."""
        letters, self.letters = self.letters, []
        return letters


class Stage:
    """One daemon of toy kinds, whose root, journal and reader are desks; the store is real."""

    def __init__(self, limits: DaemonLimits = DaemonLimits()) -> None:  # noqa: B008
        self.driver = HandDriver()
        self.store = MemoryRows()
        self.hooked = HookedRows(self.store)
        self.journal = FencedRows(self.hooked, process=b"j" * 16)
        self.journal.bootstrap(SIZES)
        sharding = Sharding(KINDS, SIZES)
        codec = Codec(KINDS)
        self.region = Region(KINDS, codec=codec, sharding=sharding, sizes=SIZES)
        self.root, self.committer, self.reader = (
            begun(Desk(name, self.driver)) for name in ("root", "journal", "reader")
        )
        self.round = RoundShell(
            self.driver,
            region=self.region,
            journal=self.committer.ref,
            root=self.root.ref,
            passes_max=limits.round_passes_max,
        )
        self.context = DaemonContext(
            kinds=KINDS,
            codec=codec,
            sharding=sharding,
            region=self.region,
            driver=self.driver,
            root=self.root.ref,
            journal=self.committer.ref,
            round=begun(self.round),
            readers=(self.reader.ref,),
            goals=Goals(self.region.routes),
            store="store",
            limits=limits,
        )
        self.shard = sharding.shard_of(NOTE)

    def shell(self, shard: ShardId | None = None) -> ShardShell:
        """A shard that has asked for its claim."""
        shell = begun(ShardShell(shard or self.shard, self.context))
        self.region.routes.set_shard(shell.shard, shell.ref)
        self.driver.run()
        return shell

    def opened(self, shard: ShardId | None = None) -> ShardShell:
        """A shard that has recovered; what it said on the way is taken."""
        shell = self.shell(shard)
        self.give(shell, self.claim(shell.shard))
        for desk in (self.root, self.committer, self.reader):
            desk.taken()
        return shell

    def claim(self, shard: ShardId, journal: FencedRows | None = None) -> ClaimTaken:
        """What a reader answers."""
        journal = journal or self.journal
        claimed = journal.claim(shard, "")
        assert isinstance(claimed, Claimed)
        parts = [*journal.read_checkpoint(shard)]
        return ClaimTaken(claimed, parts, [*journal.read_tail(shard)])

    def give(self, shell: Shell, letter: Any) -> None:
        """A letter to a shell, and all that follows at once; final states are read meanwhile."""
        send(shell.ref, letter)
        self.driver.run()
        while loads := [each for each in self.reader.letters if isinstance(each, Load)]:
            for load in loads:
                self.reader.letters.remove(load)
                rows = [(name, self._ended(load.shard, name)) for name in load.keys]
                send(load.sender, Loaded(rows))
            self.driver.run()

    def _ended(self, shard: ShardId, name: Key) -> EndedRow | None:
        return self.journal.read_ended(shard, kind=kind_of(name), key=name)

    def works(self) -> list[Work]:
        """What the journal was given to write since the last call."""
        letters = self.committer.taken()
        return [
            work for each in letters if isinstance(each, Commit) for work in each.works.values()
        ]

    def answer(self, *answers: tuple[Shell, Answer]) -> None:
        """What the journal says, and all that follows at once."""
        self.give(self.round, WorkDone({shell.ref: answer for shell, answer in answers}))

    def ask(self, shell: Shell, message: Message, to: Key = NOTE) -> Future[Any]:
        """A command; its answer."""
        answer: Future[Any] = Future()
        self.give(shell, Mail([Envelope(to, message, reply_to=answer)]))
        return answer
