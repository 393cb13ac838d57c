"""Real kills: what is to be killed runs in a fork of this process, which kills itself.

Must not be used where this process has threads that hold locks: a fork has none of the threads, and
waits for ever.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def dies_at(number: int) -> Callable[[], None]:
    """To be called at each step of a fork: the call of this number is its end."""
    left = [number]

    def step() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def is_killed(act: Callable[[], object]) -> bool:
    """Do it in a fork; whether that was killed. It must not fail otherwise."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)
