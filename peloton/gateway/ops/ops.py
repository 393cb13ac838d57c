"""peloton.ops.v1.Ops: why a job is not running, dead letters, stories, hosts, change feeds.

`Redrive` and `ForgetHost` carry out an operator's order; nothing is repaired without one.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Collection, Iterator, Mapping
from functools import cache, partial
from typing import Any

from peloton.actors.job.messages import JobView
from peloton.actors.job.slice import messages as slice_messages
from peloton.actors.job.stages import TERMINAL_JOB_STATES
from peloton.actors.respool import messages as respool_messages
from peloton.actors.respool.lot import messages as lot_messages
from peloton.actors.schedule import messages as schedule_messages
from peloton.actors.task.messages import SLICE_SIZE, End
from peloton.gateway.access.lockdowns import NO_LOCKS, FollowedLocks, engine_reasons
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.feed import ClusterFeed
from peloton.gateway.cluster.instances import lot_waits
from peloton.gateway.cluster.inventories import troubled_hosts
from peloton.gateway.cluster.named_jobs import existing_job
from peloton.gateway.ops.blockers import WaitingInstance, explain_reason, run_times
from peloton.gateway.ops.early_checks import EarlyChecks
from peloton.gateway.ops.hosts import forget, host_views, host_with_runs, known_host
from peloton.gateway.ops.lost_room import add_lost_room
from peloton.gateway.ops.pool_reports import history_of
from peloton.gateway.ops.runs_in_doubt import RunsInDoubt
from peloton.gateway.ops.waits import JobWaits
from peloton.gateway.ops.watch import Watches
from peloton.gateway.server.calls import is_hidden
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.translate.actor_keys import ActorKey, BadKey, parse_key
from peloton.gateway.translate.reasons import (
    Reason,
    ReasonGroup,
    at_goal,
    failed_update,
    grouped,
    is_at_rest,
    reason_at_rest,
    reason_of,
    unadded_text,
    workflow_text,
)
from peloton.gateway.translate.texts import known_job
from peloton.gateway.translate.translate_pool import standing_of
from peloton.gateway.v0.resource_manager import visible_pools
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.vocabulary import Absent, Bits, Key, Unavailable, kind_of
from peloton.sdk.kit import GetState
from peloton.settings.permissions_file import Permission

WAITERS_MAX = 4096
"""WaitJob calls at once; none holds a thread."""
WAIT_S_MAX = 60.0
SIGNAL_CODE_FIRST = 128


class Ops:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(
        self,
        cluster_client: ClusterClient,
        feed: ClusterFeed,
        *,
        scarce_gpu: bool = False,
        locks: FollowedLocks = NO_LOCKS,
        extensions: Collection[str] = (),
    ) -> None:
        self._cluster_client, self._locks = cluster_client, locks
        self._extensions = extensions
        self._early = EarlyChecks(cluster_client, scarce_gpu=scarce_gpu)
        self._waits, self._waiting = JobWaits(feed), cluster_client.shared("calls of WaitJob")
        self._watches = Watches(cluster_client, feed, extensions=extensions)

    def Why(self, sent: ops.WhyRequest, context: Context) -> Any:
        """Return the reason of each instance that is not at its goal; equal reasons are grouped.

        If all are at their goal: since when they run, or how they ended and who ordered it.
        """
        job = self._job(sent.job_id, context)
        start, stop = 0, job.reach
        if sent.HasField("instance"):
            start, stop = sent.instance, sent.instance + 1
            if start >= job.reach:
                text = f"instance {start} must be < {job.spec.instances}"
                end(context, Code.NOT_FOUND, text=text)
        alone = sent.HasField("instance")
        found = list(self._cluster_client.instances(job, start, context=context, stop=stop))
        if alone and not found:
            why = unadded_text(job) or "it has no host: its number waits for one that joins"
            end(context, Code.NOT_FOUND, text=f"instance {start} does not exist: {why}")
        troubled = cache(partial(troubled_hosts, self._cluster_client, context))
        named = self._names_hosts(context)
        in_doubt = RunsInDoubt(troubled, named=named).reasons(found, alone=alone)
        reasons = self._reasons(job, found, in_doubt=in_doubt, alone=alone, context=context)
        add_lost_room(reasons, troubled, named=named)
        state = job.summary.state.name
        if job.because and not job.blocked_by and not alone:
            reasons.append(ops.Reason(state=state, code="job", text=job.because))
        text = "" if alone else workflow_text(job)
        if text:
            reasons.append(ops.Reason(state=state, code="workflow", text=text))
        failed = None if alone else failed_update(job, found)
        if failed is not None:
            reasons.append(ops.Reason(state=state, code="workflow-failed", **failed._asdict()))
        reasons = [*engine_reasons(self._locks.now, state), *reasons]
        return ops.WhyResponse(reasons=reasons, counts={} if alone else dict(job.summary.counts))

    def _reasons(
        self,
        job: JobView,
        found: list[slice_messages.InstanceView],
        *,
        in_doubt: Mapping[int, Reason],
        alone: bool,
        context: Context,
    ) -> list[ops.Reason]:
        """Return the reasons of the instances; if some wait or failed, those at their goal are
        left out."""
        views = [view for view in found if _is_news(view) or view.instance in in_doubt] or found
        lots = lot_waits(views, cluster_client=self._cluster_client, context=context)
        now = self._cluster_client.execution.now()

        def why(view: slice_messages.InstanceView) -> Reason:
            if view.instance in in_doubt:
                return in_doubt[view.instance]
            if is_at_rest(view):
                return reason_at_rest(view, job, alone=alone)
            return reason_of(view, job, lots=lots)

        groups = grouped((view, why(view)) for view in views)
        reasons = [_reason(group, now) for group in groups]
        runs_s, early = run_times(found), self._early.of_job(job, context)
        for group, reason in zip(groups, reasons, strict=True):
            lot = lots.get(group.first.lot)
            waits = WaitingInstance(group.first, job, lot, group.size, runs_s)
            explain_reason(reason, waits, now=now)
            if reason.blockers:
                early.add(reason, group.first)
        return reasons

    def _names_hosts(self, context: Context) -> bool:
        """Return whether the caller may see which hosts there are."""
        rights = self._cluster_client.rights(context)
        return rights is None or rights.may(Permission.ADMINISTER, "/")

    async def WaitJob(self, sent: ops.WaitJobRequest, call: LongCall) -> Any:
        """Answer when the job has ended or the timeout is over, without polling."""
        # A negative or NaN time means no wait.
        wait_s = min(sent.timeout_s if sent.timeout_s > 0 else 0.0, WAIT_S_MAX)
        text = "{}: poll the job instead"
        self._cluster_client.take_quota(self._waiting, call, most=WAITERS_MAX, text=text)
        try:
            job = known_job(sent.job_id)
            if job is not None and wait_s and not is_hidden(call):
                # It reads the job itself, patiently: the owner may be leaving just now.
                ended = partial(call.share, self._ended)
                found = await self._waits.until_ended(job, wait_s, conclude=ended)
                if isinstance(found, Unavailable):
                    end(call, Code.UNAVAILABLE, text=found.text)
                if found is not None:
                    return found
        finally:
            self._waiting.leave(call.principal)
        return await call.run(self._ended, await call.run(self._job, sent.job_id))

    async def Watch(self, sent: ops.WatchRequest, call: LongCall) -> None:
        """Stream the changes of a job, of kinds or of a pool."""
        await self._watches.watch(sent, call)

    def ListQuarantine(self, sent: ops.ListQuarantineRequest, context: Context) -> Any:
        """Return the dead letters, and the actors in quarantine because of them."""
        found = self._cluster_client.wait(self._cluster_client.cluster.quarantine(), context)
        answer = ops.ListQuarantineResponse()
        for key, fact in sorted(found, key=lambda pair: str(pair[0])):
            for name, member in _members(key, fact):
                lines = self._lines(key, member, context=context)
                answer.quarantined.append(
                    ops.Quarantined(
                        key=name,
                        message=self._message(key, fact),
                        error=getattr(
                            fact, "error", "in quarantine: accepts only goals and queries"
                        ),
                        attempts=getattr(fact, "attempts", 0),
                        at=getattr(fact, "at", 0.0),
                        story=lines,
                    )
                )
        return answer

    def Redrive(self, sent: ops.RedriveRequest, context: Context) -> Any:
        """Redrive all dead letters of an actor, in their order."""
        key = self._parsed(sent.key, context).key
        found = self._cluster_client.wait(self._cluster_client.cluster.quarantine(), context)
        facts = [fact for owner, fact in found if owner == key]
        if sent.message:
            facts = [fact for fact in facts if self._message(key, fact) == sent.message]
        if not facts:
            end(context, Code.NOT_FOUND, text=f"no such dead letter of {sent.key}")
        redriven = self._cluster_client.cluster.redrive(key)
        self._cluster_client.wait(redriven, context, safe=False, changes=True)
        return ops.RedriveResponse()

    def Story(self, sent: ops.StoryRequest, context: Context) -> Any:
        """Return the recent transitions of one actor, with their causes."""
        key, member = self._parsed(sent.key, context)
        lines = [] if is_hidden(context) else self._lines(key, member, context=context)
        if not lines and not self._exists(key, member, context=context):
            # An actor that exists may have no lines: it did nothing since its daemon started.
            end(context, Code.NOT_FOUND, text=f"no such actor: {sent.key}")
        return ops.StoryResponse(lines=lines)

    def ListHosts(self, sent: ops.ListHostsRequest, context: Context) -> Any:
        """Return every host, by name."""
        return ops.ListHostsResponse(hosts=host_views(self._cluster_client, context))

    def ListPools(self, sent: ops.ListPoolsRequest, context: Context) -> Any:
        """Return reservation, entitlement, use and demand of every pool that the caller may see."""
        rights = self._cluster_client.rights(context)
        pools = visible_pools(self._cluster_client.pools(context), rights)
        return ops.ListPoolsResponse(pools=map(standing_of, pools.values()))

    def PoolHistory(self, sent: ops.PoolHistoryRequest, context: Context) -> Any:
        """Return what a pool held, borrowed and left to others, hour by hour."""
        if not sent.path.startswith("/"):
            end(context, Code.INVALID_ARGUMENT, text=f"{sent.path!r} is not a path", field="path")
        found = self._cluster_client.pool_history(sent.path, context)
        if found is None:
            end(context, Code.NOT_FOUND, text=f"no such pool: {sent.path}", field="path")
        return history_of(found)

    def ShowHost(self, sent: ops.ShowHostRequest, context: Context) -> Any:
        """Return one host and its runs."""
        return host_with_runs(self._cluster_client, sent, context=context)

    def ForgetHost(self, sent: ops.ForgetHostRequest, context: Context) -> Any:
        """Remove a host from the cluster."""
        return forget(self._cluster_client, sent, context=context)

    # ---- inside ----

    def _ended(self, job: JobView, context: Context) -> ops.WaitJobResponse:
        state = job.summary.state
        code, signal, problem = self._exit(job, context)
        return ops.WaitJobResponse(
            state=state.name,
            done=state in TERMINAL_JOB_STATES,
            counts=dict(job.summary.counts),
            exit_code=code,
            signal=signal,
            problem=problem,
        )

    def _parsed(self, text: str, context: Context) -> ActorKey:
        """Return the key that a client names."""
        try:
            return parse_key(text, extensions=self._extensions)
        except BadKey as error:
            end(context, Code.INVALID_ARGUMENT, text=str(error), field="key")

    def _job(self, job_id: str, context: Context) -> JobView:
        return existing_job(self._cluster_client, job_id, context=context)

    def _exists(self, key: Key, member: int | None, *, context: Context) -> bool:
        kind, _, name = key.partition("/")
        if kind in ("job", "slice", "task"):
            job = self._cluster_client.job(known_job(name.partition("/")[0]), context)
            if job is None or kind == "job":
                return job is not None
            return int(name.partition("/")[2]) * SLICE_SIZE + (member or 0) < job.reach
        if kind == "respool":
            return bool(self._cluster_client.pool(respool_messages.GetPool(key), context))
        if kind == "lot":
            found = self._cluster_client.ask(key, lot_messages.GetLot(), context=context)
            return isinstance(found, lot_messages.LotWaits)
        if kind == "schedule":
            found = self._cluster_client.ask(key, schedule_messages.GetSchedule(), context=context)
            return isinstance(found, schedule_messages.ScheduleView)
        if kind in self._extensions:
            found = self._cluster_client.ask(key, GetState(), context=context)
            return not isinstance(found, Absent)
        if kind == "inventory":
            return int(name) < len(self._cluster_client.cluster.shards_of(kind))
        return known_host(self._cluster_client, key, context=context)

    def _exit(self, job: JobView, context: Context) -> tuple[int, str, str]:
        """Return 0 for success; for a failed job the exit code of its lowest failed instance.

        With the signal that ended the instance, if any; the code is then 128 and its number. For an
        instance that has neither, 1 and why it failed.
        """
        if job.summary.state.name != "FAILED":
            return (0 if job.summary.state.name == "SUCCEEDED" else 1), "", ""
        for view in self._cluster_client.instances(job, context=context):
            outcome = view.outcome
            if outcome is not None and outcome.end == End.FAILED:
                code = outcome.exit_code or signal_code(outcome.signal)
                return code or 1, outcome.signal, "" if code else outcome.message or outcome.reason
        return 1, "", ""

    def _message(self, key: Key, fact: Any) -> str:
        """Return the name of the dead letter's message; empty for a quarantine itself."""
        number = getattr(fact, "number", None)
        return "" if number is None else self._cluster_client.cluster.message_name(key, number)

    def _lines(self, key: Key, member: int | None, *, context: Context) -> list[ops.Line]:
        lines = self._cluster_client.wait(self._cluster_client.cluster.story(key, member), context)
        return [
            ops.Line(
                at=line.at,
                cause=line.cause,
                because=line.because,
                facts=[type(fact).__name__ for fact in line.facts],
                who=line.who,
            )
            for line in lines
        ]


def signal_code(name: str) -> int:
    """Return the exit code that a shell gives for a signal; 0 for a name that is none."""
    number = name.removeprefix("SIG")
    if number.isdecimal():
        return SIGNAL_CODE_FIRST + int(number)  # a real-time signal has no name
    known = getattr(signals.Signals, name, None) if name else None
    return SIGNAL_CODE_FIRST + int(known) if known is not None else 0


def _is_news(view: slice_messages.InstanceView) -> bool:
    """Return whether an instance is told of beside others that are at their goal."""
    return not at_goal(view) or view.state == "KILLED"


def _reason(group: ReasonGroup, now: float) -> ops.Reason:
    view, why_ = group.first, group.why
    text = why_.text if group.size == 1 else f"{group.size} instances: {why_.text}"
    found = ops.Reason(
        instance=view.instance,
        state=view.state,
        code=why_.code,
        text=text,
        age_s=max(0.0, now - why_.known_at) if why_.known_at is not None else 0.0,
        counts=dict(why_.counts),
        instances=group.size,
    )
    if why_.position is not None:
        found.position = why_.position
    if why_.retry_at is not None:
        found.retry_at = why_.retry_at
    return found


def _members(key: Key, fact: Any) -> Iterator[tuple[str, int | None]]:
    """Yield the names of the actors concerned: of a crowd its members, by their instance's
    number."""
    members = Bits.unpack(fact.members)
    if kind_of(key) != "task" or not members:
        yield str(key), None
        return
    crowd, _, number = key.rpartition("/")
    for member in members:
        yield f"{crowd}/{int(number) * SLICE_SIZE + member}", member
