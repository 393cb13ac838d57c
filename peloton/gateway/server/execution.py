"""What the calls of a server run on: threads and real time, or one thread and virtual time.

A daemon has the first. A simulation passes its own: there the servicers are the same, and whatever
they wait for passes in virtual time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NamedTuple

from peloton.gateway.server.carrier import call_server
from peloton.gateway.server.long_calls import LOOP
from peloton.gateway.server.served_calls import CallServer


def _threads(most: int) -> Executor:
    return ThreadPoolExecutor(most, thread_name_prefix="gateway")


def _wall_s() -> float:
    return time.time()


class Execution(NamedTuple):
    """How calls arrive, where they run, and by which clocks."""

    carrier: Callable[..., CallServer] = call_server
    """Makes what brings the calls; its arguments are those of `CallServer`."""
    loop: Callable[[], asyncio.AbstractEventLoop] = LOOP.get
    """Returns the loop of calls that wait or stream."""
    threads: Callable[[int], Executor] = _threads
    """Makes what runs calls that block, so many at once at most."""
    now: Callable[[], float] = _wall_s
    """Seconds since the epoch."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds, for durations."""


REAL = Execution()
