"""Calls whose answers are under way: each ends with its answer, or when it is late.

No thread waits for them. They have the places of calls that need a thread.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

from peloton.gateway.access.guard import CallCode, Guard
from peloton.gateway.access.principals import SharedQuota
from peloton.gateway.server.calls import LEFT, Later
from peloton.gateway.server.execution import Execution
from peloton.gateway.server.served_calls import ServedCall

LOOK_S = 1.0
"""How often they are looked through for those that are late."""


class LaterAnswers:
    """Those of one server. `calls` has their places, guarded by `lock`."""

    def __init__(self, calls: SharedQuota, lock: threading.Lock, *, execution: Execution) -> None:
        self._execution = execution
        self._calls, self._lock = calls, lock
        self._later: dict[ServedCall, tuple[float, Later, str]] = {}  # with when they are late
        self._looks = False  # whether a look through those is due

    def answer(self, call: ServedCall, later: Later, *, name: str) -> None:
        """End a call with its answer once that is there; the call has its place already."""
        with self._lock:
            self._later[call] = (self._execution.monotonic() + later.wait_s, later, name)
            first, self._looks = not self._looks, True
        if first:
            self._execution.loop().call_soon_threadsafe(self._end_late)

        # It must not hold `later`, which holds the future: what a call has made would be freed only
        # by the collector.
        def take(future: Future[Any]) -> None:
            with self._lock:
                found = self._later.pop(call, None)
                if found is None:
                    return  # it was late
                self._calls.leave(call.principal)
            with Guard(call.end, name):
                call.end(message=found[1].encode(future.result()))

        call.on_cancel = lambda: self._leave(call)
        if call.cancelled:  # before it was set
            self._leave(call)
        later.future.add_done_callback(take)

    def _leave(self, call: ServedCall) -> None:
        """Free the place of a call whose client does not wait any more."""
        with self._lock:
            found = self._later.pop(call, None)
            if found is None:
                return
            self._calls.leave(call.principal)
        found[1].future.cancel()
        call.end(CallCode.CANCELLED.value[0], LEFT)  # for its note: nobody is there any more

    def _end_late(self) -> None:
        """End the calls whose answers are late; on the loop, as long as any call waits."""
        now_s = self._execution.monotonic()
        with self._lock:
            late = [(call, *found) for call, found in self._later.items() if found[0] <= now_s]
            for call, *_ in late:
                del self._later[call]
                self._calls.leave(call.principal)
            self._looks = bool(self._later)
            if self._looks:
                asyncio.get_running_loop().call_later(LOOK_S, self._end_late)
        for call, _, later, name in late:
            later.future.cancel()
            with Guard(call.end, name):
                later.late()
