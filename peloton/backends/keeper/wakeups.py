"""Signals as something to read: a loop that waits for descriptors wakes up for them, too.

The handlers do nothing: the descriptor makes the selector return, and the kernel is asked what
happened. It must not know what the loop does.
"""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable


def wake_on_signals(selector: selectors.BaseSelector, on_term: Callable[[], object]) -> int:
    """A descriptor, registered, that can be read after each signal; `on_term`: at a SIGTERM. Only
    on the main thread, once."""
    alarm, wakeup = os.pipe()
    for fd in (alarm, wakeup):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: on_term())
    # Not SIG_IGN, which tasks would inherit: an exec resets handlers, and nothing else.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    selector.register(alarm, selectors.EVENT_READ)
    return alarm


def read_alarm(alarm: int) -> None:
    """Read what signals have left there: it has woken us."""
    try:
        while os.read(alarm, 4096):
            pass
    except BlockingIOError:
        return
