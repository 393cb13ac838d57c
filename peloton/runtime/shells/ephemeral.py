"""The shell of an ephemeral service: a placer, a backend. Its state is not journaled.

Passes mail to the service and sends what it returns. A service that raises is reset and goes on
with empty state: its clients repeat their requests. The shell keeps no state for the service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.shells.daemon_context import SERVICE_MAIL_MAX
from peloton.runtime.shells.shell import Driver, LastingShell
from peloton.runtime.shells.shell_messages import (
    Mail,
    PeerReachable,
    Ref,
    Renamed,
    RoundLost,
    ShellFailed,
    Wake,
    reply_addresses,
    resolve,
    send,
)
from peloton.runtime.vocabulary import Unavailable

if TYPE_CHECKING:
    from peloton.runtime.shells.region import Region

CHECK_AGAIN_S = 0.5


class EphemeralService(Protocol):
    """An ephemeral service. All its keys begin with the prefix it is registered under.

    `own_thread`: the work is heavy, or waits for something outside the process. A service without a
    thread of its own must never wait.
    """

    @property
    def own_thread(self) -> bool:
        """Whether the service gets a thread of its own."""

    @property
    def wake_at(self) -> float | None:
        """When `receive` is due next even without mail, in seconds; None: not needed."""

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope | Reply]:
        """Process envelopes in order (none at a wake-up); return what to send."""

    def reset(self) -> None:
        """Drop all state.

        The service raised, and its state may be inconsistent; or shards have told it what never
        happened.
        """

    def rename(self, member: str, *, number: int, count: int) -> None:
        """Take `<prefix>/<member>` as the key from now on, in a fleet.

        The service is number `number` (from 0) of the `count` members that run it.
        """


class StatelessService:
    """Base of services that have no state, and need not know their member's name."""

    own_thread = False
    wake_at: float | None = None

    def reset(self) -> None:
        """Do nothing: there is no state."""

    def rename(self, member: str, *, number: int, count: int) -> None:
        """Do nothing: the senders know the service's key."""


@runtime_checkable
class RequestingService(Protocol):
    """An ephemeral service that makes requests of its own accord, and repeats lost ones in time."""

    def hurry(self) -> None:
        """Repeat in the next `receive` what was lost: it may arrive now."""


class EphemeralShell(LastingShell):
    """The shell of one service of one daemon."""

    def __init__(
        self, prefix: str, driver: Driver, *, service: EphemeralService, region: Region, root: Ref
    ):
        super().__init__(f"service-{prefix}", driver, root=root)
        self.service = service
        self._region = region
        self._named: Renamed | None = None
        self.outward = False  # acts on the world, so it gets no mail while our session is in doubt
        self.service_mail_max = SERVICE_MAIL_MAX
        self.dropped = 0  # for metrics
        self._mail: list[Envelope] = []
        self.wake_soon()

    def handle(self, message: Any) -> None:
        """Gather mail, and call the service once at the end of the grant."""
        if isinstance(message, Mail):
            self._mail += message.envelopes
        elif isinstance(message, Renamed):
            self._rename(message)
        elif isinstance(message, RoundLost):
            self._mail.clear()
            self.service.reset()
        elif isinstance(message, PeerReachable):
            if isinstance(self.service, RequestingService):
                self.service.hurry()
        elif not isinstance(message, Wake):
            return
        if not self.actor_inbox.at_end():
            return
        if self.outward and not self._region.routes.current:
            # Senders repeat what matters, so what exceeds the limit may be dropped.
            self.dropped += max(0, len(self._mail) - self.service_mail_max)
            del self._mail[self.service_mail_max :]
            self.wake(self.now + CHECK_AGAIN_S)
            return
        mail, self._mail = self._mail, []
        try:
            output = list(self.service.receive(mail, self.now))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            for reply_to in reply_addresses(mail):
                resolve(reply_to, Unavailable(f"{self.name}: {text}"))
            self.service.reset()
            send(self._root, ShellFailed(self.name, text, fatal=False))
            output = []
        self._send_output(output)
        if self.service.wake_at is not None:
            self.wake(self.service.wake_at)

    def _rename(self, named: Renamed) -> None:
        """Rename the service; sent at every change of the view, also without effect here."""
        if named == self._named:
            return
        if self._named is None or named.member != self._named.member:
            self._mail.clear()  # sent to a member that has left: its orders are void
        self._named = named
        self.service.rename(named.member, number=named.number, count=named.count)

    def _send_output(self, output: list[Envelope | Reply]) -> None:
        envelopes: list[Envelope] = []
        for each in output:
            if isinstance(each, Reply):
                resolve(each.reply_to, each.value)
            else:
                envelopes.append(each)
        if envelopes:
            self._region.tell(envelopes)
