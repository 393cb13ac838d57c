"""A dispatcher: one thread that drives many shells, and wakes them.

Grants turns to the shells that have mail, round robin, and sends `WAKE` at the times they set. A
message is delivered without a lock: the lock is for sleeping.

The turns of all shells that are ready are one pass. What they send to shells of a dispatcher that
sleeps wakes it at the end of the pass: so it finds all of it together (the journal commits the
frames of all shards in one round), and takes the interpreter's lock from nobody in the middle.

A dispatcher that is lent has its shells run by the thread that would wake it then: on a quick disk
two wake-ups, and a thread more that wants the interpreter's lock, cost more than a commit.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from peloton.runtime.shells.shell import Clock, Shell
from peloton.runtime.shells.shell_messages import WAKE, send

MESSAGES_PER_GRANT_MAX = 256
THREAD_NAME_MAX = 15
"""Characters of a thread's name that the kernel keeps."""
SLEEP_S_MAX = 15.0
"""The kernel does not count the time for which the machine slept: so late, at most, is a wake."""
DISPATCHER_STOP_S_MAX = 5.0
PASS_S_MAX = 0.02
"""A pass that lasts longer wakes others after each message: there is work enough to share, or it
waits for a store, and what it has found so far must not wait with it."""

LENT_S_MAX, OWN_PASSES = 0.01, 8
"""A pass on a foreign thread that took longer is followed by so many on the own one: what waits for
a slow disk must not hold up who has work."""


class _Pass(threading.local):
    """The wake-ups of the pass that this thread is in."""

    wakes: dict[Dispatcher, None] | None = None
    """The dispatchers to wake at its end; None outside of a pass."""
    late_s = 0.0
    """From then on, on the monotonic clock, they are woken before its end."""


_PASS = _Pass()


class Dispatcher:
    """Runs its shells on its own thread, from `start` to `stop`."""

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
        self._turn = threading.Lock()  # held by the thread that runs the shells
        self._lent = False
        self._own_passes = 0  # that its own thread has to run before it is lent again
        self._thread = threading.Thread(target=self._run_guarded, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; shells may have been attached before."""
        self._thread.start()

    def lend(self) -> None:
        """Let other dispatchers run its shells from now on, which must set no wake-ups."""
        self._lent = True

    def leave(self) -> None:
        """End after the grant in progress; shells keep what is in their inboxes."""
        self._stopping = True
        self._ring()

    def stop(self, timeout_s: float = DISPATCHER_STOP_S_MAX) -> None:
        """End after the grant in progress, and wait for that, at most `timeout_s`."""
        self.leave()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    @property
    def busy(self) -> bool:
        return bool(self._ready)

    def attach(self, shell: Shell) -> None:
        """Attach a shell; it is known here only while it is ready or has a wake-up."""
        shell.actor_inbox.on_next = _ring_if_late

    def mail_waiting(self, shell: Shell) -> None:
        """Queue a shell that has mail. To queue it twice costs one empty grant."""
        if shell.queued:
            return
        shell.queued = True
        self._ready.append(shell)
        # The sleeper sets the flag and then checks the queue; here the order is reversed, so at
        # least one of the two sees what the other did.
        if self._asleep:
            if _PASS.wakes is not None:
                _PASS.wakes[self] = None
            else:
                self._ring()

    def wake(self, shell: Shell, at_s: float) -> None:
        """Set the shell's wake-up. Only called from the dispatcher's own thread."""
        if shell.wake_at_s == at_s:
            return
        shell.wake_at_s = at_s
        heapq.heappush(self._wakes, (at_s, next(self._numbers), shell))

    def _ring(self) -> None:
        with self._bell:
            self._bell.notify()

    def _run_guarded(self) -> None:
        """Report an exception: without this the daemon would look alive and do nothing."""
        _tell_kernel(self._name.removeprefix("peloton-"))
        try:
            self._run()
        except Exception as error:
            self.broken(f"{self._name}: {type(error).__name__}: {error}")

    def about_to_wait(self) -> None:
        _ring_all()

    def broken(self, text: str) -> None:
        """Pass the failure to the dispatcher's owner, who ends the daemon: see `Driver.broken`."""
        if self._on_broken is None:
            raise RuntimeError(text)
        self._on_broken(text)

    def _run(self) -> None:
        while not self._stopping:
            self._ring_due()
            if not self._ready:
                self._sleep()
                continue
            with self._turn:
                self._run_pass()

    def _run_pass(self) -> None:
        """Grant a turn to each shell that is ready."""
        wakes: dict[Dispatcher, None] = {}
        _PASS.wakes, _PASS.late_s = wakes, time.monotonic() + PASS_S_MAX
        try:
            for _ in range(len(self._ready)):
                shell = self._ready.popleft()
                # Cleared first, so that what is put from now on queues the shell again.
                shell.queued = False
                shell.grant(MESSAGES_PER_GRANT_MAX)
                if not shell.actor_inbox.empty() and not shell.actor_stopped.is_set():
                    self.mail_waiting(shell)
        finally:
            # Also after an exception, which ends the thread: from now on nothing waits for an end.
            _PASS.wakes = None
        for other in wakes:
            if not other._run_lent():
                other._ring()

    def _run_lent(self) -> bool:
        """Run the dispatcher's shells on this thread; return whether none is left."""
        if not self._lent or self._stopping:
            return False
        if self._own_passes:
            self._own_passes -= 1
            return False
        if not self._turn.acquire(blocking=False):
            return False
        try:
            began_s = time.monotonic()
            self._run_pass()
            if time.monotonic() - began_s > LENT_S_MAX:
                self._own_passes = OWN_PASSES
        finally:
            self._turn.release()
        return not self._ready

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


def _ring_if_late() -> None:
    """Wake the dispatchers that this thread's pass was to wake at its end, if it lasts too long."""
    if _PASS.wakes and time.monotonic() > _PASS.late_s:
        _ring_all()


def _ring_all() -> None:
    wakes = _PASS.wakes
    if wakes:
        for other in wakes:
            other._ring()
        wakes.clear()


def _tell_kernel(name: str) -> None:
    """Name the calling thread for `top -H` and other tools that count CPU by thread."""
    # Only a name: where there is no such file, the threads are called as the process is.
    with contextlib.suppress(OSError):
        Path("/proc/thread-self/comm").write_text(name[:THREAD_NAME_MAX])


class Threads:
    """Makes one dispatcher per name; the drivers of a real daemon."""

    def __init__(self, clock: Clock, *, on_idle: Callable[[], None] | None = None) -> None:
        self.clock = clock
        self.on_broken: Callable[[str], None] | None = None
        self._on_idle = on_idle
        self._made: dict[str, Dispatcher] = {}

    def driver(self, name: str) -> Dispatcher:
        """Return the dispatcher of that name, started at the first call."""
        found = self._made.get(name)
        if found is None:
            on_idle = self._on_idle if name == "shards" else None
            found = self._made[name] = Dispatcher(
                f"peloton-{name}", self.clock, on_idle=on_idle, on_broken=self._broke
            )
            found.start()
        return found

    def lend(self, name: str) -> None:
        """Let others run the dispatcher of that name: see `Dispatcher.lend`."""
        self.driver(name).lend()

    def stop(self) -> None:
        """End all threads; they share one timeout, as several may wait for the same dead store."""
        for made in self._made.values():
            made.leave()
        end_s = time.monotonic() + DISPATCHER_STOP_S_MAX
        for made in self._made.values():
            made.stop(max(0.0, end_s - time.monotonic()))

    def _broke(self, text: str) -> None:
        if self.on_broken is not None:
            self.on_broken(text)
