"""Schedules: create, get, list, pause, resume, delete. The cluster computes the moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peloton.ops.v1 import schedules_pb2 as wire
from peloton.ops.v1 import schedules_pb2_grpc
from peloton.sdk import specs
from peloton.sdk.calls import Calls, M, call
from peloton.sdk.jobs import built
from peloton.sdk.rpc import READ, RpcName, keyed

OVERLAPS = ("skip", "allow", "replace")


@dataclass(frozen=True)
class Timing:
    """When a schedule makes a job, and when not."""

    cron: str
    zone: str = "UTC"
    overlap: str = OVERLAPS[0]
    starting_deadline_s: float = 0.0
    paused: bool = False


def _rpc(name: str) -> RpcName:
    return RpcName("api", schedules_pb2_grpc.SchedulesStub, name)


def _schedule(name: str, pool: str, *, config: Any, timing: Timing) -> wire.Schedule:
    return wire.Schedule(
        name=name,
        cron=timing.cron,
        time_zone=timing.zone,
        pool=pool,
        overlap=OVERLAPS.index(timing.overlap),  # type: ignore[arg-type]
        starting_deadline_s=timing.starting_deadline_s,
        paused=timing.paused,
        job=built(config),
    )


class ScheduleCalls(Calls[M]):
    """The calls of peloton.ops.v1.Schedules."""

    @call
    async def create(
        self, name: str, pool: str, *, config: Any, timing: Timing, request_key: str | None = None
    ) -> wire.CreateScheduleResponse:
        """Create a schedule; `config` is the spec of its jobs, see `specs`."""
        schedule = _schedule(name, pool, config=config, timing=timing)
        request = wire.CreateScheduleRequest(schedule=schedule)
        with specs.spelled_as(config):
            return await self._wire.call(_rpc("CreateSchedule"), request, how=keyed(request_key))

    @call
    async def check(
        self, name: str, pool: str, *, config: Any, timing: Timing
    ) -> wire.CheckScheduleResponse:
        """Return the next moments of a schedule that could be made; makes nothing."""
        schedule = _schedule(name, pool, config=config, timing=timing)
        request = wire.CheckScheduleRequest(schedule=schedule)
        with specs.spelled_as(config):
            found: wire.CheckScheduleResponse = await self._wire.call(
                _rpc("CheckSchedule"), request, how=READ
            )
            return found

    @call
    async def get(self, name: str) -> wire.GetScheduleResponse:
        """Return one schedule, with the last jobs it made."""
        return await self._wire.call(_rpc("GetSchedule"), wire.GetScheduleRequest(name=name))

    @call
    async def all(self) -> wire.ListSchedulesResponse:
        """Return all schedules that the caller may see."""
        return await self._wire.call(_rpc("ListSchedules"), wire.ListSchedulesRequest())

    @call
    async def pause(
        self, name: str, *, request_key: str | None = None
    ) -> wire.PauseScheduleResponse:
        """Let a schedule make no jobs until it is resumed."""
        request = wire.PauseScheduleRequest(name=name)
        return await self._wire.call(_rpc("PauseSchedule"), request, how=keyed(request_key))

    @call
    async def resume(
        self, name: str, *, request_key: str | None = None
    ) -> wire.ResumeScheduleResponse:
        """Let a schedule make jobs again, from the next moment on."""
        request = wire.ResumeScheduleRequest(name=name)
        return await self._wire.call(_rpc("ResumeSchedule"), request, how=keyed(request_key))

    @call
    async def delete(
        self, name: str, *, request_key: str | None = None
    ) -> wire.DeleteScheduleResponse:
        """Delete a schedule; its jobs stay."""
        request = wire.DeleteScheduleRequest(name=name)
        return await self._wire.call(_rpc("DeleteSchedule"), request, how=keyed(request_key))
