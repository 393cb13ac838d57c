"""A shell: a pykka actor whose loop runs only when its driver grants it.

Pykka leaves three hooks to an actor class: its inbox, its futures and the start of its loop. Here
the inbox yields as many envelopes as were granted and then raises out of pykka's loop, so one
thread (or a seeded stepper) drives many actors. A shell must never block on another one, and never
let an exception reach pykka: there, one in a told message stops the actor, and a `BaseException`
stops every actor of the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import pykka

from peloton.runtime.shells.shell_messages import WAKE, Ref, send


class Clock(Protocol):
    """Where a daemon reads the time."""

    def now(self) -> float:
        """Seconds since the epoch; never less than before."""


class Driver(Protocol):
    """What makes shells run: a dispatcher with a thread, or a stepper."""

    @property
    def clock(self) -> Clock:
        """The time its shells live in."""

    def attach(self, shell: Shell) -> None:
        """The shell begins."""

    def rung(self, shell: Shell) -> None:
        """Something lies in the shell's inbox; called from any thread."""

    def wake(self, shell: Shell, at_s: float) -> None:
        """Tell the shell `WAKE` at that time, instead of at the time asked for before."""

    def broken(self, text: str) -> None:
        """A shell cannot go on, and cannot say so: neither can its process."""


class NotGranted(Exception):
    """Leads out of pykka's loop: the grant is used up, or nothing waits."""


class Inbox:
    """What waits for one shell."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self.granted = 0
        self.bell: Callable[[], None] | None = None
        self.left: Callable[[Any], None] | None = None
        """Once the actor is over: takes what nobody will handle any more."""

    def put(self, envelope: Any) -> None:
        """From any thread."""
        self._waiting.append(envelope)
        if self.left is not None:
            self.clear()
        elif self.bell is not None:
            self.bell()

    def clear(self) -> None:
        """Hand what waits to `left`; from any thread, each letter once."""
        while self._waiting and self.left is not None:
            try:
                envelope = self._waiting.popleft()
            except IndexError:  # another thread was first
                return
            self.left(envelope)

    def get(self) -> Any:
        """The next envelope of the grant; never waits."""
        if self.granted <= 0 or not self._waiting:
            raise NotGranted
        self.granted -= 1
        return self._waiting.popleft()

    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def qsize(self) -> int:
        """How much waits."""
        return len(self._waiting)

    def at_end(self) -> bool:
        """Whether this grant will yield nothing more: the moment to act on what was gathered."""
        return self.granted <= 0 or not self._waiting


class Shell(pykka.Actor):
    """Base of all shells: subclasses say what a letter means (`handle`) and what failing means."""

    actor_inbox: Inbox

    def __init__(self, name: str, driver: Driver) -> None:
        super().__init__()
        self.name = name
        self.driver = driver
        self.queued = False  # by the driver: it stands in the line of ready shells
        self.wake_at_s: float | None = None
        self.actor_inbox.bell = lambda: driver.rung(self)

    def handle(self, message: Any) -> None:
        """Do what a letter asks for."""
        raise NotImplementedError

    def failed(self, error: BaseException) -> None:
        """`handle` raised; this must not."""
        raise NotImplementedError

    def late(self, message: Any) -> None:
        """A letter that came after the end, on the thread of who told it: refuse its asks."""

    @property
    def now(self) -> float:
        """The time."""
        return self.driver.clock.now()

    @property
    def ref(self) -> Ref:
        """How others name this shell."""
        return self.actor_ref

    def wake(self, at_s: float) -> None:
        """Be told `WAKE` then; one moment only, the newest."""
        self.driver.wake(self, at_s)

    def again(self) -> None:
        """Go on at the next grant, after others had theirs."""
        send(self.ref, WAKE)

    def grant(self, messages: int) -> None:
        """Handle up to so many letters, now, on the thread of the caller."""
        self.actor_inbox.granted = messages
        try:
            self._actor_loop_running()
        except NotGranted:
            return
        # Instead of pykka's own end, which reads on beyond a grant and drops what was told. Who
        # tells us from now on, not knowing yet that we are over, has his letter taken by `late`.
        self.actor_inbox.left = self._left
        self.actor_inbox.clear()

    def _left(self, envelope: Any) -> None:
        if envelope.reply_to is not None:
            envelope.reply_to.set(None)  # of a second, blocking `stop`: it has stopped
        else:
            self.late(envelope.message)

    def on_receive(self, message: Any) -> None:
        """Pykka's call for each letter."""
        try:
            self.handle(message)
        except BaseException as error:
            # `SystemExit` of a plug-in too: pykka would stop every actor of the process for it,
            # and wait for them on this very thread.
            try:
                self.failed(error)
            except BaseException as second:
                # Its own answer to failing failed: pykka would end this one actor in silence, and
                # the daemon would go on without it.
                text = f"{type(second).__name__}: {second}, after {type(error).__name__}: {error}"
                self.driver.broken(f"{self.name}: {text}")

    @staticmethod
    def _create_actor_inbox() -> Any:
        return Inbox()

    @staticmethod
    def _create_future() -> Any:
        return pykka.ThreadingFuture()

    def _start_actor_loop(self) -> None:
        self.driver.attach(self)


def begin_shell(shell: Shell) -> Ref:
    """What `Actor.start` does, for a shell that is needed as an object as well."""
    pykka.ActorRegistry.register(shell.actor_ref)
    shell._start_actor_loop()
    return shell.actor_ref
