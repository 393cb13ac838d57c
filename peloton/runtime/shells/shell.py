"""A shell: a pykka actor whose loop runs only when its driver grants it.

Pykka leaves three hooks to an actor class: its inbox, its futures and the start of its loop. Here
the inbox yields as many messages as were granted and then raises out of pykka's loop, so one
thread (or a seeded stepper) drives many actors. A shell must never block on another one, and never
let an exception reach pykka: pykka stops the actor for an exception, and every actor of the
process for a `BaseException`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import pykka

from peloton.runtime.shells.shell_messages import WAKE, Ref, ShellFailed, send


class Clock(Protocol):
    """The clock of a daemon."""

    def now(self) -> float:
        """Return seconds since the epoch; never less than before."""

    def wall(self) -> float:
        """Return seconds since the epoch by the clock that people set, which may jump both ways."""


class Driver(Protocol):
    """Runs shells: a dispatcher with a thread, or a stepper of a simulation."""

    @property
    def clock(self) -> Clock:
        """The clock of its shells."""

    @property
    def busy(self) -> bool:
        """Whether any of its shells has mail, besides the one that runs."""

    def attach(self, shell: Shell) -> None:
        """Attach a shell that starts."""

    def mail_waiting(self, shell: Shell) -> None:
        """Note that a message was put into the shell's inbox; called from any thread."""

    def wake(self, shell: Shell, at_s: float) -> None:
        """Send `WAKE` to the shell at that time, in seconds; replaces the time set before."""

    def about_to_wait(self) -> None:
        """Wake the receivers of a shell's mail now: the shell is about to block for long."""

    def broken(self, text: str) -> None:
        """End the process: a shell cannot go on and could not report it."""


class NotGranted(Exception):
    """Leaves pykka's loop: the grant is used up, or the inbox is empty."""


class Inbox:
    """The queue of one shell."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self.granted = 0
        self.on_mail: Callable[[], None] | None = None
        self.on_next: Callable[[], None] | None = None
        """Called before each message of a grant, by the thread that handles it."""
        self.left: Callable[[Any], None] | None = None
        """Once the actor has ended: called with each message that will not be handled."""

    def put(self, envelope: Any) -> None:
        """Add a message; from any thread."""
        self._waiting.append(envelope)
        if self.left is not None:
            self.clear()
        elif self.on_mail is not None:
            self.on_mail()

    def clear(self) -> None:
        """Pass waiting messages to `left`; from any thread, each message once."""
        while self._waiting and self.left is not None:
            try:
                envelope = self._waiting.popleft()
            except IndexError:  # another thread was first
                return
            self.left(envelope)

    def get(self) -> Any:
        """Return the next message of the grant; raises `NotGranted` instead of waiting."""
        if self.granted <= 0 or not self._waiting:
            raise NotGranted
        if self.on_next is not None:
            self.on_next()
        self.granted -= 1
        return self._waiting.popleft()

    def empty(self) -> bool:
        return not self._waiting

    def qsize(self) -> int:
        """Return how many messages wait."""
        return len(self._waiting)

    def at_end(self) -> bool:
        """Return whether this grant yields nothing more: the time to process what was gathered."""
        return self.granted <= 0 or not self._waiting


class Shell(pykka.Actor):
    """Base of all shells: subclasses define `handle`, and `failed` for its exceptions."""

    actor_inbox: Inbox

    def __init__(self, name: str, driver: Driver) -> None:
        super().__init__()
        self.name = name
        self.driver = driver
        self.queued = False  # set by the driver: it is in the driver's queue of ready shells
        self.wake_at_s: float | None = None
        self.actor_inbox.on_mail = lambda: driver.mail_waiting(self)

    def handle(self, message: Any) -> None:
        """Process one message."""
        raise NotImplementedError

    def failed(self, error: BaseException) -> None:
        """Handle an exception of `handle`; must not raise."""
        raise NotImplementedError

    def late(self, message: Any) -> None:
        """Refuse the calls of a message after the end. Runs on the sender's thread."""

    @property
    def now(self) -> float:
        """Return seconds since the epoch."""
        return self.driver.clock.now()

    @property
    def ref(self) -> Ref:
        """The address of this shell."""
        return self.actor_ref

    def wake(self, at_s: float) -> None:
        """Receive `WAKE` at that time; only the newest time counts."""
        self.driver.wake(self, at_s)

    def wake_soon(self) -> None:
        """Receive `WAKE` at the next grant, after other shells had theirs, and end this grant."""
        self.actor_inbox.granted = 0
        send(self.ref, WAKE)

    def grant(self, messages: int) -> None:
        """Handle up to so many messages now, on the thread of the caller."""
        self.actor_inbox.granted = messages
        try:
            self._actor_loop_running()
        except NotGranted:
            return
        # Replaces pykka's own end, which reads on beyond the grant and drops the messages. From
        # now on `late` gets what is sent by shells that do not know of the end yet.
        self.actor_inbox.left = self._left
        self.actor_inbox.clear()

    def _left(self, envelope: Any) -> None:
        if envelope.reply_to is not None:
            envelope.reply_to.set(None)  # of a second, blocking `stop`: it has stopped
        else:
            self.late(envelope.message)

    def on_receive(self, message: Any) -> None:
        """Receive a message; pykka calls this for each."""
        try:
            self.handle(message)
        except BaseException as error:
            # `SystemExit` of a plug-in too: pykka would stop every actor of the process for it,
            # and wait for them on this very thread.
            try:
                self.failed(error)
            except BaseException as second:
                # `failed` raised too: pykka would end this actor silently, and the daemon would go
                # on without it.
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


class LastingShell(Shell):
    """Base of shells that last as long as their daemon, which ends if one of them fails.

    Its knowledge of writes, rounds or claims may be wrong then, and only a new process starts
    clean.
    """

    def __init__(self, name: str, driver: Driver, *, root: Ref) -> None:
        super().__init__(name, driver)
        self._root = root

    def failed(self, error: BaseException) -> None:
        """End the daemon."""
        send(self._root, ShellFailed(self.name, f"{type(error).__name__}: {error}", fatal=True))


def begin_shell(shell: Shell) -> Ref:
    """Start a shell as `Actor.start` does, for callers that need the object as well."""
    pykka.ActorRegistry.register(shell.actor_ref)
    shell._start_actor_loop()
    return shell.actor_ref
