"""The shell of a soft-state machine: a placer, a backend. Nothing it knows is journaled.

Turns mail into calls of the machine and its words into mail. A machine that raises is reset and
goes on with an empty head: those who wanted something of it ask again. The shell must not keep
anything for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from peloton.runtime.core.envelope import AskAnswer, Envelope
from peloton.runtime.shells.daemon_context import HELD_MAIL_MAX
from peloton.runtime.shells.shell import Driver, Shell
from peloton.runtime.shells.shell_messages import (
    Mail,
    Ref,
    Renamed,
    ShellFailed,
    Wake,
    reply_addresses,
    resolve,
    send,
)
from peloton.runtime.vocabulary import Unavailable

if TYPE_CHECKING:
    from peloton.runtime.shells.region import Region

LOOK_AGAIN_S = 0.5


class EphemeralService(Protocol):
    """What a soft machine is. All its keys begin with the prefix it is registered under.

    `own_thread`: its work is heavy, or it waits for something outside (then only there).
    """

    @property
    def own_thread(self) -> bool:
        """Whether it gets one."""

    @property
    def wake_at(self) -> float | None:
        """When it wants to be called next, whatever comes."""

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope | AskAnswer]:
        """Messages in order, or none at a wake-up; what it says to that."""

    def reset(self) -> None:
        """Forget everything: it raised, and what it holds cannot be trusted."""

    def rename(self, member: str, *, number: int, count: int) -> None:
        """In a fleet: `<prefix>/<member>` is the key it speaks under from now on, as number
        `number` (from 0) of the `count` members that have such a machine."""


class EphemeralShell(Shell):
    """One machine."""

    def __init__(
        self, prefix: str, driver: Driver, *, machine: EphemeralService, region: Region, root: Ref
    ):
        super().__init__(f"soft-{prefix}", driver)
        self.machine = machine
        self._region = region
        self._root = root
        self._named: Renamed | None = None
        self.outward = False  # acts on the world: not while our session is in doubt
        self.held_mail_max = HELD_MAIL_MAX
        self.dropped = 0  # for figures
        self._mail: list[Envelope] = []
        self.again()

    def handle(self, message: Any) -> None:
        """Gather, and call the machine once at the end of the grant."""
        if isinstance(message, Mail):
            self._mail += message.envelopes
        elif isinstance(message, Renamed):
            self._rename(message)
        elif not isinstance(message, Wake):
            return
        if not self.actor_inbox.at_end():
            return
        if self.outward and not self._region.places.current:
            # Whoever ordered says again what matters, so what is too much may be dropped.
            self.dropped += max(0, len(self._mail) - self.held_mail_max)
            del self._mail[self.held_mail_max :]
            self.wake(self.now + LOOK_AGAIN_S)
            return
        mail, self._mail = self._mail, []
        try:
            said = list(self.machine.receive(mail, self.now))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            for reply_to in reply_addresses(mail):
                resolve(reply_to, Unavailable(f"{self.name}: {text}"))
            self.machine.reset()
            send(self._root, ShellFailed(self.name, text, fatal=False))
            said = []
        self._speak(said)
        if self.machine.wake_at is not None:
            self.wake(self.machine.wake_at)

    def failed(self, error: BaseException) -> None:
        """The machine could not even be reset."""
        send(self._root, ShellFailed(self.name, f"{type(error).__name__}: {error}", fatal=True))

    def _rename(self, named: Renamed) -> None:
        """Told at every change of the view, most of which are none to us."""
        if named == self._named:
            return
        if self._named is None or named.member != self._named.member:
            self._mail.clear()  # orders of shards that are no more ours
        self._named = named
        self.machine.rename(named.member, number=named.number, count=named.count)

    def _speak(self, said: list[Envelope | AskAnswer]) -> None:
        envelopes: list[Envelope] = []
        for each in said:
            if isinstance(each, AskAnswer):
                resolve(each.reply_to, each.value)
            else:
                envelopes.append(each)
        if envelopes:
            self._region.tell(envelopes)
