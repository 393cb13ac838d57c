"""Peloton's own questions: why, wait, quarantine, story.

Must not mend anything by itself; `redrive` does what it is told, once.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from peloton.sdk.errors import TryLater, Unavailable
from peloton.sdk.wire import ONCE, Method, Wire

# One question of a wait; the server may answer earlier, and is asked again.
WAIT_ASK_S = 20.0
# The server's answer may be on its way when its own time is over.
WAIT_GRACE_S = 5.0
# A wait outlives a restart of the daemon, but not its disappearance.
SILENCE_MAX_S = 60.0
SILENCE_PAUSE_S = 0.5
# A server that answers "not yet" at once must not be asked without a breath.
BREATH_S = 0.05
CROWDED_PAUSE_S = 1.0


class Ended(NamedTuple):
    """What a wait came to. `done` false: the time was over first, and the job goes on."""

    state: str
    done: bool
    counts: dict[str, int]
    exit_code: int


def method(name: str) -> Method:
    return Method("api", ops_pb2_grpc.OpsStub, name)


class Ops:
    """The calls of peloton.ops.v1."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def why(self, job: str, instance: int | None = None) -> ops.WhyResponse:
        """Why the job, or one instance, is in the state it is in."""
        return self._wire.call(method("Why"), ops.WhyRequest(job_id=job, instance=instance))

    def wait(self, job: str, *, timeout_s: float | None = None) -> Ended:
        """Returns when the job has ended, or after `timeout_s`; None waits as long as it takes."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        silent_since: float | None = None
        while True:
            left_s = None if until is None else max(until - time.monotonic(), 0.0)
            ask_s = WAIT_ASK_S if left_s is None else min(WAIT_ASK_S, left_s)
            request = ops.WaitJobRequest(job_id=job, timeout_s=ask_s)
            grace_s = ask_s + WAIT_GRACE_S
            try:
                answer = self._wire.call(method("WaitJob"), request, timeout_s=grace_s)
            except TryLater:
                # Others wait already, as many as the server lets; it is there, so go on asking.
                if until is not None and time.monotonic() >= until:
                    raise
                time.sleep(CROWDED_PAUSE_S)
                continue
            except Unavailable:
                now = time.monotonic()
                silent_since = silent_since or now
                over = until is not None and now >= until
                if over or now - silent_since > SILENCE_MAX_S:
                    raise
                time.sleep(SILENCE_PAUSE_S)
                continue
            silent_since = None
            if answer.done or (until is not None and time.monotonic() >= until):
                return Ended(answer.state, answer.done, dict(answer.counts), answer.exit_code)
            time.sleep(BREATH_S)

    def quarantine(self) -> ops.ListQuarantineResponse:
        """The messages that were set aside because their actor failed on them too often."""
        return self._wire.call(method("ListQuarantine"), ops.ListQuarantineRequest())

    def redrive(self, key: str, message: str = "") -> ops.RedriveResponse:
        """Gives one of them, or without a name all of its mail, to the actor again."""
        request = ops.RedriveRequest(key=key, message=message)
        return self._wire.call(method("Redrive"), request, how=ONCE)

    def story(self, key: str) -> ops.StoryResponse:
        """What one actor did lately, and because of what."""
        return self._wire.call(method("Story"), ops.StoryRequest(key=key))
