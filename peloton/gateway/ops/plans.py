"""peloton.ops.v1.Plans: what a job or another config of a pool would bring about.

A plan is made from a copy of the cluster's state, on the thread of the call: nothing is changed,
and no shard waits for a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock
from typing import Any, NoReturn

from peloton.actors.respool import rules
from peloton.actors.respool.copies import CopyPools, PoolsCopy
from peloton.actors.respool.messages import ROOT, GetPool, PoolConfig, pool_key
from peloton.actors.respool.planning import GivenBack, PoolPlan, plan_lots, plan_pool
from peloton.actors.respool.pool_report import report
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.access.permissions import Rights
from peloton.gateway.access.principals import CallersInTurn
from peloton.gateway.cluster.cluster_client import RETRY_S, ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import all_hosts
from peloton.gateway.ops.hosts import amounts
from peloton.gateway.ops.planned_job import PlannedJob
from peloton.gateway.ops.pool_reports import report_of
from peloton.gateway.server.calls import is_hidden
from peloton.gateway.translate.translate_pool import to_pool
from peloton.gateway.v0.job_create import Creation
from peloton.ops.v1 import plans_pb2 as wire
from peloton.placement.planning import HostsNow, plan_hosts
from peloton.runtime.core.principal import Principal
from peloton.runtime.vocabulary import Key, Refused, Unavailable
from peloton.settings.permissions_file import Permission

LOTS_MAX = 20_000
"""Lots that are copied for a plan: about a second of the thread that makes it."""
HOSTS_SHOWN_MAX = 100
PLANS_MAX = 20
"""Calls for plans: one is made, the others hold a thread each and wait for their turn."""
PLANNED = Key("respool/planned")
"""A pool that is not there yet."""


class Plans:
    """The calls of the service; one method for each, named as on the wire.

    One plan at a time: each is much work for one thread, and the daemon has others to do. Callers
    take turns, so that none waits for more than one plan of each other caller. `scarce_gpu`: hosts
    with gpus are kept for tasks that ask for one, as placers do it.
    """

    def __init__(self, cluster_client: ClusterClient, *, scarce_gpu: bool = False) -> None:
        self._cluster_client = cluster_client
        self._scarce_gpu = scarce_gpu
        self._places = cluster_client.shared("plans")
        self._made: Future[None] | None = None  # the turn of the plan that is being made
        self._turns: CallersInTurn[Future[None]] = CallersInTurn()
        self._lock = Lock()

    def PlanJob(self, sent: wire.PlanJobRequest, context: Context) -> Any:
        """Return what would become of a job that is created now."""
        request = job.CreateRequest(config=sent.config)
        wanted = Creation(self._cluster_client, request, context=context).wanted()
        if isinstance(wanted, str):
            _invalid(context, wanted)
        parsed, pool = wanted
        if parsed.spec.is_daemon:
            text = "a daemon job cannot be planned yet: it has one instance on each host"
            end(context, Code.UNIMPLEMENTED, text=text)
        planned = PlannedJob(parsed)
        with self._alone(context):
            now = self._cluster_client.execution.now()
            plan = plan_lots(self._copied(context), planned.lots(), now=now)
            views = all_hosts(self._cluster_client, context, labels=True)
            summaries = [view.summary for view in views]
            hosts = plan_hosts(
                summaries,
                planned.wishes(plan.admitted),
                scarce_gpu=self._scarce_gpu,
                now=now,
                strategies=self._cluster_client.strategies.table,
            )
        found = wire.PlanJobResponse(
            pool=pool.path,
            instances=parsed.spec.instances,
            admitted=sum(map(len, plan.admitted.values())),
            placed=hosts.placed,
            hosts_in_all=len(hosts.hosts),
            given_back=given_by(plan.given_back, self._cluster_client.rights(context)),
            admitted_later=sum(map(len, plan.later.values())),
            preempts_after_s=plan.sustained_s if plan.given_back else 0.0,
            nobody_because=plan.verdict,
        )
        if self._cluster_client.rights(context) is None:
            for name, count in hosts.hosts[:HOSTS_SHOWN_MAX]:
                found.hosts.add(name=name.partition("/")[2], instances=count)
        now_there = HostsNow(summaries, scarce_gpu=self._scarce_gpu)
        found.waits.extend(planned.waits(plan, hosts, now=now_there))
        found.verdict = _verdict(found)
        return found

    def PlanPool(self, sent: wire.PlanPoolRequest, context: Context) -> Any:
        """Return what a new pool, or another config of a pool, would change."""
        if not sent.HasField("config"):
            end(context, Code.INVALID_ARGUMENT, text="resource pool config is nil", field="config")
        config, pool = to_pool(sent.config), pool_key(sent.pool_id) if sent.pool_id else PLANNED
        with self._alone(context):
            plan = self._planned_pool(pool, config, context=context)
        if isinstance(plan, Unavailable):
            end(context, Code.UNAVAILABLE, text=plan.text, retry_s=RETRY_S)
        if isinstance(plan, Refused):
            code = Code.NOT_FOUND if plan.code == rules.NOT_FOUND else Code.INVALID_ARGUMENT
            # The problem of a config names its own field.
            field = "" if plan.field == "config" and config.problem else plan.field
            end(context, code, text=plan.text, field=field)
        rights = self._cluster_client.rights(context)
        return wire.PlanPoolResponse(
            shares=[
                wire.PlannedShare(
                    path=share.path,
                    before=amounts(share.before),
                    after=amounts(share.after),
                    used=amounts(share.used),
                    wanted=amounts(share.wanted),
                )
                for share in plan.shares
                if rights is None or rights.sees_pool(share.path)
            ],
            admitted=[
                wire.AdmittedJob(
                    pool=each.pool,
                    job=_shown_job(each.job, each.pool, rights=rights),
                    instances=each.tasks,
                )
                for each in plan.admitted
                if rights is None or rights.sees_pool(each.pool)
            ],
            given_back=given_by(plan.given_back, rights),
            preempts_after_s=plan.sustained_s if plan.given_back else 0.0,
        )

    def ExplainPool(self, sent: wire.ExplainPoolRequest, context: Context) -> Any:
        """Return how a pool came to what it may use, which jobs wait there, and which give back."""
        if not sent.path.startswith("/"):
            text = f"{sent.path!r} is not the path of a pool, such as /default"
            end(context, Code.INVALID_ARGUMENT, text=text, field="path")
        with self._alone(context):
            views = self._cluster_client.pool(GetPool(path=sent.path), context)
            now = self._cluster_client.execution.now()
            found = report(self._copied(context), sent.path, now=now) if views else None
        if found is None:
            end(context, Code.NOT_FOUND, text=f"no such pool: {sent.path}", field="path")
        rights = self._cluster_client.rights(context)
        return report_of(found, rights=rights, text=views[0].because)

    def _planned_pool(
        self, pool: Key, config: PoolConfig, *, context: Context
    ) -> PoolPlan | Refused | Unavailable:
        if is_hidden(context):
            if pool != PLANNED:
                return _no_pool()
            named = config.parent.partition("/")[2]
            text = f"parent resource pool {named} not found"
            return Refused(rules.INVALID, text, "config.parent")
        of = self._copied(context)
        if pool != PLANNED and pool not in dict(of.pools):
            return _no_pool()
        return plan_pool(of, pool, config=config, now=self._cluster_client.execution.now())

    def _copied(self, context: Context) -> PoolsCopy:
        found = self._cluster_client.ask(ROOT, CopyPools(LOTS_MAX), context=context)
        if not isinstance(found, PoolsCopy):
            text = f"{ROOT} is not created yet: the cluster is still starting"
            end(context, Code.UNAVAILABLE, text=text, retry_s=RETRY_S)
        if found.more_lots:
            text = (
                f"{LOTS_MAX + found.more_lots} lots of tasks wait or run, and a plan is made for "
                f"at most {LOTS_MAX}"
            )
            end(context, Code.RESOURCE_EXHAUSTED, text=text)
        return found

    @contextmanager
    def _alone(self, context: Context) -> Iterator[None]:
        """Wait for a turn. End the call of a caller with as many plans as are left for all
        others."""
        who, turn = self._cluster_client.permissions.whose(context), Future[None]()
        with self._lock:
            self._cluster_client.take_quota(self._places, context, most=PLANS_MAX)
            if self._made is None:
                self._made = turn
                turn.set_result(None)
            else:
                self._turns.add(who, turn)
        try:
            self._cluster_client.wait(turn, context, of="the plans before this one")
            yield
        finally:
            self._pass_on(turn, who)

    def _pass_on(self, turn: Future[None], who: Principal) -> None:
        """Pass the turn on: a call for a plan has ended, perhaps before its turn."""
        with self._lock:
            self._places.leave(who)
            if self._made is not turn:
                self._turns.remove(who, turn)
                return
            self._made = following = self._turns.next() if self._turns else None
        # One whose client has left passes its turn on itself.
        if following is not None and following.set_running_or_notify_cancel():
            following.set_result(None)


def _no_pool() -> Refused:
    return Refused(rules.NOT_FOUND, "resource pool not found", "pool_id")


def _invalid(context: Context, text: str) -> NoReturn:
    """End the call; a text that begins with a field is said to be about that field."""
    field, colon, rest = text.partition(": ")
    named = bool(colon) and field.startswith("config") and " " not in field
    if named:
        end(context, Code.INVALID_ARGUMENT, text=rest, field=field)
    end(context, Code.INVALID_ARGUMENT, text=text, field="config")


def _verdict(found: wire.PlanJobResponse) -> Any:
    if any(each.never for each in found.waits):
        return wire.VERDICT_NEVER
    if found.given_back:
        return wire.VERDICT_PREEMPTS
    return wire.VERDICT_WAITS if found.waits else wire.VERDICT_STARTS


def _shown_job(job_id: str, pool: str, *, rights: Rights | None) -> str:
    """Return the job if it may be seen: a caller that may submit to a pool sees the pool, but
    not its jobs."""
    return job_id if rights is None or rights.may(Permission.SEE, pool) else ""


def given_by(given: Iterable[GivenBack], rights: Rights | None) -> Iterator[wire.GivenBack]:
    """Yield what others give back; the owner only if the caller may see it."""
    for each in given:
        seen = rights is None or rights.sees_pool(each.pool)
        yield wire.GivenBack(
            pool=each.pool if seen else "",
            job=_shown_job(each.job, each.pool, rights=rights),
            instances=each.tasks,
            amount=amounts(each.amount),
        )
