"""peloton.ops.v1.Schedules: schedules, between the wire and their actors.

A request becomes a command for a schedule, after the checks that a job of it would meet.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

from peloton.actors.respool.messages import GetPool
from peloton.actors.schedule import messages as m
from peloton.actors.schedule.cron import Moments, parse_cron
from peloton.actors.schedule.messages import EXISTS, INVALID, NOT_FOUND
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.access.permissions import Rights
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.translate.actor_keys import SCHEDULE_NAME, named_schedule, own_schedule
from peloton.gateway.translate.job_labels import AFTER, UNIQUE
from peloton.gateway.translate.texts import client_name
from peloton.gateway.v0.job_create import Creation
from peloton.ops.v1 import schedules_pb2 as wire
from peloton.runtime.adapters.time_zones import zone_of
from peloton.runtime.core.reading.listing import ListViews
from peloton.runtime.vocabulary import Key, Message, Refused
from peloton.settings.permissions_file import Permission

MOMENTS_TOLD = 3
LATE_S_MAX = 366 * 86_400.0
CODES = {
    EXISTS: Code.ALREADY_EXISTS,
    NOT_FOUND: Code.NOT_FOUND,
    INVALID: Code.INVALID_ARGUMENT,
}


class Schedules:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def CreateSchedule(self, sent: wire.CreateScheduleRequest, context: Context) -> Any:
        """Create a schedule."""
        given = sent.schedule
        spec = self._spec(given, context)
        command = m.CreateSchedule(spec, given.paused)
        self._order(self._new(given.name, context), command, sent=sent, context=context)
        return wire.CreateScheduleResponse()

    def _new(self, name: str, context: Context) -> Key:
        """Return the key of a schedule to be made, or of the one that has its name already."""
        client, of_all = self._cluster_client, named_schedule(name)
        rights = client.rights(context)
        if rights is None:
            return of_all
        # Whether another one of this name is hidden from them, its refusal would tell.
        own = own_schedule(name, client.permissions.whose(context))
        if isinstance(client.ask(own, m.GetSchedule(), context=context), m.ScheduleView):
            return own
        # One that was made before there were rules, or by who administers all, keeps its name.
        view = client.ask(of_all, m.GetSchedule(), context=context)
        seen = isinstance(view, m.ScheduleView) and _is_seen(view.summary, rights)
        return of_all if seen else own

    def CheckSchedule(self, sent: wire.CheckScheduleRequest, context: Context) -> Any:
        """Return when a schedule would make jobs, if it can be made."""
        spec = self._spec(sent.schedule, context)
        moments, found = Moments(spec.cron, zone_of(spec.zone)), wire.CheckScheduleResponse()
        moment = moments.after(self._cluster_client.execution.now())
        while moment is not None and len(found.moments) < MOMENTS_TOLD:
            found.moments.append(moment)
            moment = moments.after(moment)
        if not found.moments:
            _invalid(context, f"{spec.cron!r} never comes", field="schedule.cron")
        return found

    def GetSchedule(self, sent: wire.GetScheduleRequest, context: Context) -> Any:
        """Return one schedule."""
        view = self._cluster_client.ask(_key(sent.name, context), m.GetSchedule(), context=context)
        if not isinstance(view, m.ScheduleView):
            end(context, Code.NOT_FOUND, text=f"no such schedule: {sent.name}")
        info = _info(view.summary)
        info.schedule.job.ParseFromString(view.raw)
        del info.jobs[:]
        info.jobs.extend(map(_job, view.runs))
        if view.skip is not None:
            info.skipped_at, info.skipped_because = view.skip.moment, view.skip.why
        return wire.GetScheduleResponse(info=info)

    def ListSchedules(self, sent: wire.ListSchedulesRequest, context: Context) -> Any:
        """Return the schedules that the caller may see, by name."""
        found = self._cluster_client.listing(ListViews("schedule"), context).items
        rights = self._cluster_client.rights(context)
        seen = [
            one
            for one in sorted(found, key=lambda one: str(one.schedule))
            if rights is None or _is_seen(one, rights)
        ]
        return wire.ListSchedulesResponse(schedules=map(_info, seen))

    def PauseSchedule(self, sent: wire.PauseScheduleRequest, context: Context) -> Any:
        """Let the schedule make no jobs."""
        self._order(_key(sent.name, context), m.PauseSchedule(True), sent=sent, context=context)
        return wire.PauseScheduleResponse()

    def ResumeSchedule(self, sent: wire.ResumeScheduleRequest, context: Context) -> Any:
        """Let the schedule make jobs again."""
        self._order(_key(sent.name, context), m.PauseSchedule(False), sent=sent, context=context)
        return wire.ResumeScheduleResponse()

    def DeleteSchedule(self, sent: wire.DeleteScheduleRequest, context: Context) -> Any:
        """Delete the schedule, and leave its jobs."""
        self._order(_key(sent.name, context), m.DeleteSchedule(), sent=sent, context=context)
        return wire.DeleteScheduleResponse()

    def _order(self, to: Key, command: Message, *, sent: Any, context: Context) -> None:
        request = request_of(sent, context)
        answer = self._cluster_client.ask(to, command, context=context, request=request)
        if isinstance(answer, Refused):
            code = CODES.get(answer.code, Code.FAILED_PRECONDITION)
            end(context, code, text=answer, field=answer.field)

    def _spec(self, given: wire.Schedule, context: Context) -> m.ScheduleSpec:
        """Return the schedule, checked as far as it can be without its actor; or end the call."""
        if SCHEDULE_NAME.fullmatch(given.name) is None:
            text = f"{given.name!r} is not 1 to 63 letters, digits, dots, dashes and underscores"
            _invalid(context, text, field="schedule.name")
        for check, field in (
            (lambda: parse_cron(given.cron), "schedule.cron"),
            (lambda: zone_of(given.time_zone), "schedule.time_zone"),
        ):
            try:
                check()
            except ValueError as error:
                _invalid(context, str(error), field=field)
        if given.overlap not in wire.Overlap.values():
            _invalid(context, f"unknown policy {given.overlap}", field="schedule.overlap")
        late_s = given.starting_deadline_s
        if not (math.isfinite(late_s) and 0 <= late_s <= LATE_S_MAX):
            text = f"{late_s:g} is not between 0 and {LATE_S_MAX:g}"
            _invalid(context, text, field="schedule.starting_deadline_s")
        if given.job.ByteSize() > m.SPEC_BYTES_MAX:
            text = f"{given.job.ByteSize()} bytes, the limit is {m.SPEC_BYTES_MAX}"
            _invalid(context, text, field="schedule.job")
        config, path = self._config(given, context)
        found = Creation(
            self._cluster_client, job.CreateRequest(config=config), context=context
        ).wanted()
        if isinstance(found, str):
            _invalid(context, found, field="schedule.job")
        parsed, _ = found
        if parsed.spec.after or parsed.spec.unique:
            text = f"labels {AFTER} and {UNIQUE} are not for jobs of a schedule: see `overlap`"
            _invalid(context, text, field="schedule.job.labels")
        return m.ScheduleSpec(
            cron=given.cron,
            zone=given.time_zone or "UTC",
            pool_path=path,
            job=parsed.spec,
            overrides=tuple(parsed.pieces.items()),
            overlap=m.Overlaps(given.overlap),
            starting_deadline_s=late_s,
            raw=config.SerializeToString(deterministic=True),
        )

    def _config(self, given: wire.Schedule, context: Context) -> tuple[job.JobConfig, str]:
        """Return the config with the id of its pool, and the path of that."""
        query = GetPool(path=f"/{given.pool.strip('/')}", config_only=True)
        pools = self._cluster_client.pool(query, context)
        if not pools:
            _invalid(context, f"there is no pool {given.pool!r}", field="schedule.pool")
        config = job.JobConfig()
        config.CopyFrom(given.job)
        config.respoolID.value = client_name(pools[0].pool)
        return config, pools[0].path


def _is_seen(line: m.ScheduleSummary, rights: Rights) -> bool:
    return rights.may_with_job(Permission.SEE, line.pool_path, created_by=line.created_by)


def _invalid(context: Context, text: str, *, field: str) -> NoReturn:
    end(context, Code.INVALID_ARGUMENT, text=text, field=field)


def _key(name: str, context: Any) -> Key:
    """Return the key that was found when the call was checked, or that of the common schedule of
    this name."""
    return getattr(context, "found", None) or named_schedule(name)


def _job(made: m.MadeJob) -> wire.ScheduledJob:
    return wire.ScheduledJob(job_id=client_name(made.job), moment=made.moment, made_at=made.at)


def _info(line: m.ScheduleSummary) -> wire.ScheduleInfo:
    return wire.ScheduleInfo(
        schedule=wire.Schedule(
            name=client_name(line.schedule),
            cron=line.cron,
            time_zone=line.zone,
            pool=line.pool_path,
            overlap=int(line.overlap),
            starting_deadline_s=line.starting_deadline_s,
            paused=line.paused,
        ),
        next_at=line.next_at,
        created_at=line.created_at,
        created_by=line.created_by,
        made=line.made,
        skipped=line.skipped,
        jobs=[_job(line.last)] if line.last is not None else [],
    )
