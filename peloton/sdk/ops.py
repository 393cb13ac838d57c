"""The calls of Peloton's own service: why, wait, watch, hosts, quarantine, story.

`redrive` sends one order, once.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeVar

from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from peloton.sdk.calls import Calls, M, call, stream
from peloton.sdk.errors import NotFound, PelotonError, ServiceUnavailable, TryLater
from peloton.sdk.rpc import ONCE, READ, RpcName, keyed
from peloton.sdk.wire import Wire

# Duration of one call of a wait; the server may answer earlier and is called again.
WAIT_CALL_S = 20.0
# The same, if progress is reported.
WAIT_SEEN_S = 1.0
# The server's answer may still be on its way at the end of the call's duration.
WAIT_GRACE_S = 2.0
# Duration of the first call and of calls while no server answers: to notice an answer early.
WAIT_FIRST_S = 1.0
# After so long without an answer the caller is informed.
SILENCE_REPORTED_S = 2.0
# A wait outlives a restart of the daemon, but not its disappearance.
SILENCE_MAX_S = 60.0
SILENCE_PAUSE_S = 0.5
# Pause between calls, also if the server answers "not yet" at once.
PAUSE_MIN_S = 0.05
CROWDED_PAUSE_S = 1.0

Told = TypeVar("Told")


class WaitResult(NamedTuple):
    """The result of a wait. `done` is false if the time was over first and the job goes on.

    `state` is empty if no server ever answered. `signal` is the signal that ended the instance
    of `exit_code`, which is then 128 and the signal's number. `problem` says why an instance that
    has neither failed; `exit_code` is then 1.
    """

    state: str
    done: bool
    counts: dict[str, int]
    exit_code: int
    signal: str = ""
    problem: str = ""


class Silence:
    """How long no server has answered, and whether that was reported."""

    def __init__(
        self,
        report: Callable[[str], None] | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._now = report, now
        self._since: float | None = None
        self._reported = False

    def goes_on(self, since: float, error: PelotonError, *, most_s: float | None = None) -> None:
        """Record that a call made at `since` got no answer; raise the error if that lasts too
        long."""
        most_s = SILENCE_MAX_S if most_s is None else most_s
        self._since = since if self._since is None else self._since
        silent_s = self._now() - self._since
        if silent_s > most_s:
            raise error
        if self._report is not None and not self._reported and silent_s >= SILENCE_REPORTED_S:
            self._reported = True
            limit = "" if most_s == math.inf else f" for {most_s:g} s at most"
            self._report(f"{error}; retrying{limit}")

    async def outlast(self, error: PelotonError, wire: Wire) -> None:
        """Wait before a stream that ended with this error is begun again, or raise it."""
        self.goes_on(self._now(), error)
        # Of TryLater: too many streams, or we read too slowly and were cut off.
        await wire.sleep(CROWDED_PAUSE_S if isinstance(error, TryLater) else SILENCE_PAUSE_S)

    def is_over(self) -> None:
        if self._report is not None and self._reported:
            self._report("it answers again")
        self._since, self._reported = None, False


def patiently(
    call: Callable[[], Told],
    *,
    timeout_s: float | None = None,
    silent: Callable[[str], None] | None = None,
) -> Told:
    """Repeat a read until a server answers, as `OpsCalls.wait` does; return the answer.

    Raises the last error after `timeout_s`; if that is None, after SILENCE_MAX_S.
    """
    silence, begun_s = Silence(silent), time.monotonic()
    while True:
        now = time.monotonic()
        try:
            answer = call()
        except ServiceUnavailable as error:
            silence.goes_on(now, error)
            if timeout_s is not None and time.monotonic() + SILENCE_PAUSE_S > begun_s + timeout_s:
                raise
        else:
            silence.is_over()
            return answer
        time.sleep(SILENCE_PAUSE_S)


def method(name: str) -> RpcName:
    return RpcName("api", ops_pb2_grpc.OpsStub, name)


class OpsCalls(Calls[M]):
    """The calls of peloton.ops.v1."""

    @call
    async def why(self, job: str, instance: int | None = None) -> ops.WhyResponse:
        """Return why the job, or one instance, is in the state it is in."""
        return await self._wire.call(method("Why"), ops.WhyRequest(job_id=job, instance=instance))

    @call
    async def wait(
        self,
        job: str,
        *,
        timeout_s: float | None = None,
        silent: Callable[[str], None] | None = None,
        seen: Callable[[WaitResult], None] | None = None,
    ) -> WaitResult:
        """Return when the job has ended, or after `timeout_s`; None waits as long as it takes.

        `silent` is called with a sentence when no server answers for a while, and when one answers
        again. Without a `timeout_s`, SILENCE_MAX_S without an answer raises ServiceUnavailable.
        `seen` is called about every second with the job's progress.
        """
        job = await self._wire.job_id(job, changes=False)
        clock = self._wire.now
        until = None if timeout_s is None else clock() + timeout_s
        silence, last = Silence(silent, clock), WaitResult("", False, {}, 0)
        call_s = WAIT_FIRST_S
        while True:
            now = clock()
            left_s = None if until is None else max(until - now, 0.0)
            call_s = call_s if left_s is None else min(call_s, left_s)
            try:
                last = await self._wait(job, call_s)
                pause_s, call_s = PAUSE_MIN_S, WAIT_CALL_S if seen is None else WAIT_SEEN_S
                silence.is_over()
                if seen is not None:
                    seen(last)
            except TryLater as error:
                # The server's limit of waiting calls is reached; it is up, so call again.
                silence.goes_on(now, error, most_s=math.inf)
                pause_s = CROWDED_PAUSE_S
            except ServiceUnavailable as error:
                silence.goes_on(now, error)
                pause_s, call_s = SILENCE_PAUSE_S, WAIT_FIRST_S
            if last.done or (until is not None and clock() >= until):
                return last
            left_s = pause_s if until is None else until - clock()
            await self._wire.sleep(max(min(pause_s, left_s), 0.0))

    async def _wait(self, job: str, call_s: float) -> WaitResult:
        request = ops.WaitJobRequest(job_id=job, timeout_s=call_s)
        answer = await self._wire.call(
            method("WaitJob"), request, how=READ, timeout_s=call_s + WAIT_GRACE_S
        )
        return WaitResult(
            answer.state,
            answer.done,
            dict(answer.counts),
            answer.exit_code,
            answer.signal,
            answer.problem,
        )

    @stream
    async def watch(
        self,
        *,
        job: str = "",
        kinds: Sequence[str] = (),
        pool: str = "",
        since: str = "",
        silent: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[ops.WatchResponse, None]:
        """Yield the changes of a job, of a pool with its jobs, or of all actors of some kinds, as
        they happen.

        Each message has the token to go on behind it, `resume`, which is the `since` of a later
        watch; without one the watch begins now. The first message has nothing else, and so have
        those that renew the token of a quiet stream. Each event has its position in the journal of
        its shard. A stream that breaks is resumed, so events of one shard come once and in order;
        what is not kept any more is a gap in a message, before its events. `silent` is as in
        `wait`; after SILENCE_MAX_S the error is raised (ServiceUnavailable, TryLater).
        """
        silence, begun, job = (
            Silence(silent, self._wire.now),
            False,
            await self._wire.job_id(job, changes=False),
        )
        while True:
            request = ops.WatchRequest(job_id=job, kinds=kinds, pool=pool, resume=since)
            try:
                async with aclosing(self._wire.stream(method("Watch"), request)) as messages:
                    async for message in messages:
                        silence.is_over()
                        renewed, since = message.resume != since, message.resume
                        if message.events or message.gaps or renewed or not begun:
                            begun = True
                            yield message
                raise ServiceUnavailable("the stream ended")
            except (TryLater, ServiceUnavailable) as error:
                await silence.outlast(error, self._wire)

    @call
    async def hosts(self) -> ops.ListHostsResponse:
        """Return every host: its state, what it has, and what of it is free."""
        return await self._wire.call(method("ListHosts"), ops.ListHostsRequest())

    @call
    async def pools(self) -> ops.ListPoolsResponse:
        """Return reservation, entitlement, use and demand of every pool that the caller may see."""
        return await self._wire.call(method("ListPools"), ops.ListPoolsRequest())

    @call
    async def pool_history(self, path: str) -> ops.PoolHistoryResponse:
        """Return what a pool held, borrowed and left to others, hour by hour. Raises NotFound."""
        return await self._wire.call(method("PoolHistory"), ops.PoolHistoryRequest(path=path))

    @call
    async def host(self, name: str, *, limit: int = 0) -> ops.ShowHostResponse:
        """Return one host, and at most so many of its runs (0: 1,000). Raises NotFound."""
        return await self._wire.call(
            method("ShowHost"), ops.ShowHostRequest(name=name, limit=limit)
        )

    @call
    async def forget_host(
        self, name: str, *, lose_runs: bool = False, request_key: str | None = None
    ) -> ops.ForgetHostResponse:
        """Remove a host. Refused if it has runs, unless those may be lost. Raises NotFound."""
        await self.host(name, limit=1)
        request = ops.ForgetHostRequest(name=name, lose_runs=lose_runs)
        try:
            return await self._wire.call(method("ForgetHost"), request, how=keyed(request_key))
        except NotFound:
            # It was there: this call has removed it, and its answer was lost.
            return ops.ForgetHostResponse()

    @call
    async def quarantine(self) -> ops.ListQuarantineResponse:
        """Return the dead letters: messages on which their actor failed too often."""
        return await self._wire.call(method("ListQuarantine"), ops.ListQuarantineRequest())

    @call
    async def redrive(self, key: str, message: str = "") -> ops.RedriveResponse:
        """Redrive the dead letters of an actor; with `message`, only if one has that name."""
        request = ops.RedriveRequest(key=key, message=message)
        return await self._wire.call(method("Redrive"), request, how=ONCE)

    @call
    async def story(self, key: str) -> ops.StoryResponse:
        """Return the recent transitions of one actor, with their causes."""
        return await self._wire.call(method("Story"), ops.StoryRequest(key=key))
