"""A descriptor that becomes readable at signals, which wakes a loop that waits for descriptors.

The handlers do nothing: the descriptor makes the selector return, and the kernel is asked what
happened.
"""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable


def wake_on_signals(selector: selectors.BaseSelector, on_term: Callable[[], object]) -> int:
    """Return a registered descriptor that can be read after signals; `on_term`: at a SIGTERM.

    To be called on the main thread, once.
    """
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
    """Read the bytes that signals have written to the descriptor."""
    try:
        while os.read(alarm, 4096):
            pass
    except BlockingIOError:
        return
