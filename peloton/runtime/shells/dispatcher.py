"""A dispatcher: one thread that drives many shells, and wakes them.

Turns "this shell has mail" into grants, round robin, and "wake me then" into letters. It must not
know what a shell does, and takes no lock on the way of a message: the lock is for falling asleep.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable

from peloton.runtime.shells.shell import Clock, Shell
from peloton.runtime.shells.shell_messages import WAKE, send

LETTERS_PER_GRANT_MAX = 256
SLEEP_S_MAX = 60.0
DISPATCHER_STOP_S_MAX = 5.0


class Dispatcher:
    """Drives its shells on a thread of its own, from `start` to `stop`."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        on_idle: Callable[[], None] | None = None,
        on_broken: Callable[[str], None] | None = None,
    ) -> None:
        self.clock = clock
        self._name = name
        self._on_idle = on_idle
        self._on_broken = on_broken
        self._ready: deque[Shell] = deque()
        self._wakes: list[tuple[float, int, Shell]] = []
        self._numbers = itertools.count()
        self._bell = threading.Condition()
        self._asleep = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run_guarded, name=name, daemon=True)

    def start(self) -> None:
        """Begin; shells may have been attached before."""
        self._thread.start()

    def leave(self) -> None:
        """End after the grant in progress; shells keep what lies in their inboxes."""
        self._stopping = True
        with self._bell:
            self._bell.notify()

    def stop(self, timeout_s: float = DISPATCHER_STOP_S_MAX) -> None:
        """End, and wait for that."""
        self.leave()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def attach(self, shell: Shell) -> None:
        """Nothing to keep: a shell is known here while it is ready or has a wake-up."""

    def rung(self, shell: Shell) -> None:
        """A shell has mail. Called twice at once it may queue twice, which costs one look."""
        if shell.queued:
            return
        shell.queued = True
        self._ready.append(shell)
        # The sleeper sets the flag and then looks at the queue; here it is the other way round,
        # so one of the two sees the other.
        if self._asleep:
            with self._bell:
                self._bell.notify()

    def wake(self, shell: Shell, at_s: float) -> None:
        """Only from the dispatcher's own thread."""
        if shell.wake_at_s == at_s:
            return
        shell.wake_at_s = at_s
        heapq.heappush(self._wakes, (at_s, next(self._numbers), shell))

    def _run_guarded(self) -> None:
        """A thread that ended silently would leave a daemon that looks alive and does nothing."""
        try:
            self._run()
        except Exception as error:
            self.broken(f"{self._name}: {type(error).__name__}: {error}")

    def broken(self, text: str) -> None:
        """As a driver; whoever made this dispatcher ends the daemon."""
        if self._on_broken is None:
            raise RuntimeError(text)
        self._on_broken(text)

    def _run(self) -> None:
        while not self._stopping:
            self._ring_due()
            if not self._ready:
                self._sleep()
                continue
            for _ in range(len(self._ready)):
                shell = self._ready.popleft()
                # Cleared first: what is put from now on rings again.
                shell.queued = False
                shell.grant(LETTERS_PER_GRANT_MAX)
                if not shell.actor_inbox.empty() and not shell.actor_stopped.is_set():
                    self.rung(shell)

    def _ring_due(self) -> None:
        now = self.clock.now() if self._wakes else 0.0
        while self._wakes and self._wakes[0][0] <= now:
            at_s, _, shell = heapq.heappop(self._wakes)
            if shell.wake_at_s == at_s:
                shell.wake_at_s = None
                send(shell.ref, WAKE)

    def _sleep(self) -> None:
        if self._on_idle is not None:
            self._on_idle()
        timeout_s = SLEEP_S_MAX
        if self._wakes:
            timeout_s = min(timeout_s, max(0.0, self._wakes[0][0] - self.clock.now()))
        with self._bell:
            self._asleep = True
            if not self._ready and not self._stopping:
                self._bell.wait(timeout_s)
            self._asleep = False


class Threads:
    """Makes a dispatcher for each name; what `start` gives to the shells of a real daemon."""

    def __init__(self, clock: Clock, *, on_idle: Callable[[], None] | None = None) -> None:
        self.clock = clock
        self.on_broken: Callable[[str], None] | None = None
        self._on_idle = on_idle
        self._made: dict[str, Dispatcher] = {}

    def driver(self, name: str) -> Dispatcher:
        """The dispatcher of that name, started when first asked for."""
        found = self._made.get(name)
        if found is None:
            on_idle = self._on_idle if name == "shards" else None
            found = self._made[name] = Dispatcher(
                f"peloton-{name}", self.clock, on_idle=on_idle, on_broken=self._broke
            )
            found.start()
        return found

    def stop(self) -> None:
        """End all threads. Those that wait for a store which does not answer do so together."""
        for made in self._made.values():
            made.leave()
        end_s = time.monotonic() + DISPATCHER_STOP_S_MAX
        for made in self._made.values():
            made.stop(max(0.0, end_s - time.monotonic()))

    def _broke(self, text: str) -> None:
        if self.on_broken is not None:
            self.on_broken(text)
