"""Peloton's own questions: why, wait, quarantine, story.

Must not mend anything by itself; `redrive` does what it is told, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from peloton.sdk.errors import ServiceUnavailable, TryLater
from peloton.sdk.wire import ONCE, READ, RpcName, Wire

# One question of a wait; the server may answer earlier, and is asked again.
WAIT_ASK_S = 20.0
# Likewise, for somebody who looks on.
WAIT_SEEN_S = 1.0
# The server's answer may be on its way when its own time is over.
WAIT_GRACE_S = 2.0
# The first question, and those while nobody answers: who is there says so at once.
WAIT_FIRST_S = 1.0
# After so long without an answer somebody who waits is told that nobody is there.
SILENCE_TOLD_S = 2.0
# A wait outlives a restart of the daemon, but not its disappearance.
SILENCE_MAX_S = 60.0
SILENCE_PAUSE_S = 0.5
# A server that answers "not yet" at once must not be asked without a breath.
BREATH_S = 0.05
CROWDED_PAUSE_S = 1.0


class WaitResult(NamedTuple):
    """What a wait came to. `done` false: the time was over first, and the job goes on.

    `state` is empty where nobody ever answered. `signal` is what ended the instance whose code
    `exit_code` is; that is then 128 and its number.
    """

    state: str
    done: bool
    counts: dict[str, int]
    exit_code: int
    signal: str = ""


class Silence:
    """How long nobody has answered, and whether that was told."""

    def __init__(self, told: Callable[[str], None] | None) -> None:
        self._tell = told
        self._since: float | None = None
        self._was_told = False

    def goes_on(self, since: float, error: ServiceUnavailable) -> None:
        """Nobody answered a question asked at `since`; raises the error when it was too long."""
        self._since = since if self._since is None else self._since
        silent_s = time.monotonic() - self._since
        if silent_s > SILENCE_MAX_S:
            raise error
        if self._tell is not None and not self._was_told and silent_s >= SILENCE_TOLD_S:
            self._was_told = True
            self._tell(f"{error}; still asking, for {SILENCE_MAX_S:g} s at most")

    def is_over(self) -> None:
        if self._tell is not None and self._was_told:
            self._tell("it answers again")
        self._since, self._was_told = None, False


def method(name: str) -> RpcName:
    return RpcName("api", ops_pb2_grpc.OpsStub, name)


class OpsCalls:
    """The calls of peloton.ops.v1."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def why(self, job: str, instance: int | None = None) -> ops.WhyResponse:
        """Why the job, or one instance, is in the state it is in."""
        return self._wire.call(method("Why"), ops.WhyRequest(job_id=job, instance=instance))

    def wait(
        self,
        job: str,
        *,
        timeout_s: float | None = None,
        silent: Callable[[str], None] | None = None,
        seen: Callable[[WaitResult], None] | None = None,
    ) -> WaitResult:
        """Returns when the job has ended, or after `timeout_s`; None waits as long as it takes.

        `silent` is told in a sentence when nobody answers for a while, and when somebody does
        again. Without a `timeout_s`, too long a silence is raised as Unavailable. `seen` is told
        every second or so how far the job is.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        silence, last = Silence(silent), WaitResult("", False, {}, 0)
        ask_s = WAIT_FIRST_S
        while True:
            now = time.monotonic()
            left_s = None if until is None else max(until - now, 0.0)
            ask_s = ask_s if left_s is None else min(ask_s, left_s)
            try:
                last = self._wait(job, ask_s)
                pause_s, ask_s = BREATH_S, WAIT_ASK_S if seen is None else WAIT_SEEN_S
                silence.is_over()
                if seen is not None:
                    seen(last)
            except TryLater:
                # Others wait already, as many as the server lets; it is there, so go on asking.
                pause_s = CROWDED_PAUSE_S
            except ServiceUnavailable as error:
                silence.goes_on(now, error)
                pause_s, ask_s = SILENCE_PAUSE_S, WAIT_FIRST_S
            if last.done or (until is not None and time.monotonic() >= until):
                return last
            time.sleep(pause_s if until is None else _no_longer(pause_s, until))

    def _wait(self, job: str, ask_s: float) -> WaitResult:
        request = ops.WaitJobRequest(job_id=job, timeout_s=ask_s)
        answer = self._wire.call(
            method("WaitJob"), request, how=READ, timeout_s=ask_s + WAIT_GRACE_S
        )
        return WaitResult(
            answer.state, answer.done, dict(answer.counts), answer.exit_code, answer.signal
        )

    def watch(
        self,
        *,
        job: str = "",
        kinds: Sequence[str] = (),
        pool: str = "",
        resume: str = "",
        silent: Callable[[str], None] | None = None,
    ) -> Iterator[ops.WatchResponse]:
        """What a job, a pool with its jobs, or all actors of some kinds write down, as it happens.

        Each message has the token to go on behind it; the first has nothing else. A stream that
        breaks is resumed, so events of one shard come once and in order, and what was lost is a
        gap in a message. `silent` is as in `wait`; too long a silence is raised as Unavailable.
        """
        silence, begun = Silence(silent), False
        while True:
            request = ops.WatchRequest(job_id=job, kinds=kinds, pool=pool, resume=resume)
            try:
                for message in self._wire.stream(method("Watch"), request):
                    silence.is_over()
                    resume = message.resume
                    if message.events or message.gaps or not begun:
                        begun = True
                        yield message
                raise ServiceUnavailable("the stream ended")
            except TryLater:
                # Too many streams, or we read too slowly and were cut off.
                pause_s = CROWDED_PAUSE_S
            except ServiceUnavailable as error:
                silence.goes_on(time.monotonic(), error)
                pause_s = SILENCE_PAUSE_S
            time.sleep(pause_s)

    def hosts(self) -> ops.ListHostsResponse:
        """Every host: its state, what it has, and what of it is free."""
        return self._wire.call(method("ListHosts"), ops.ListHostsRequest())

    def forget_host(self, name: str, *, lose_runs: bool = False) -> ops.ForgetHostResponse:
        """Says that a machine is no more. Refused where it holds runs, unless those may be lost."""
        request = ops.ForgetHostRequest(name=name, lose_runs=lose_runs)
        return self._wire.call(method("ForgetHost"), request, how=ONCE)

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


def _no_longer(pause_s: float, until: float) -> float:
    return max(min(pause_s, until - time.monotonic()), 0.0)
