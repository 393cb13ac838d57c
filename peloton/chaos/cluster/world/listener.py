"""The listener to ends of jobs, and the services that notify it and answer schedules.

Turns orders of jobs into posts, after a delay, and questions about rights into answers, or loses
them or their answers. A repeated order is posted again.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.actors.job.notice_messages import NOTIFIER, NoticeHandled, PostNotice
from peloton.actors.schedule.messages import RIGHTS, AskRights, RightsTold
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.ephemeral import StatelessService
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.world import World

POST_S_MAX = 0.5


class Listener:
    """All posts, in order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[PostNotice] = []
        self.lost_share = 0.0
        self.revoked: set[str] = set()
        """Owners who may create no jobs."""

    def answer(self, asked: AskRights) -> Iterable[Envelope]:
        """Yield what an owner of a schedule may do now."""
        if not self._is_lost():
            why = "no rights any longer" if asked.owner in self.revoked else ""
            yield Envelope(asked.schedule, RightsTold(asked, why), sender=RIGHTS)

    def post(self, daemon: SimulatedDaemon, order: PostNotice) -> None:
        """Take a daemon's attempt to post."""
        if not self._is_lost():
            after_s = self.world.chance.random() * POST_S_MAX
            self.world.later.at(self.world.now + after_s, lambda: self._arrive(daemon, order))

    def _arrive(self, daemon: SimulatedDaemon, order: PostNotice) -> None:
        self.told.append(order)
        if daemon.alive and not self._is_lost():
            handled = NoticeHandled(order.notice.number, True, "to outside")
            daemon.region.tell((Envelope(order.job, handled, sender=NOTIFIER),))

    def _is_lost(self) -> bool:
        return bool(self.lost_share) and self.world.chance.random() < self.lost_share


class SimulatedNotifier(StatelessService):
    """The notifier of one life of a daemon."""

    def __init__(self, listener: Listener, daemon: SimulatedDaemon) -> None:
        self._listener = listener
        self._daemon = daemon

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:  # noqa: ARG002
        """Take orders of jobs."""
        for envelope in envelopes:
            if isinstance(envelope.message, PostNotice):
                self._listener.post(self._daemon, envelope.message)
        return ()


class SimulatedRights(StatelessService):
    """The service of one life of a daemon that schedules ask for rights."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:  # noqa: ARG002
        """Take questions of schedules."""
        for envelope in envelopes:
            if isinstance(envelope.message, AskRights):
                yield from self._listener.answer(envelope.message)
