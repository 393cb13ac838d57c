"""Sends commands and queries of one gRPC call to the cluster and waits for the answers.

Failures that any request may meet become gRPC statuses. A `Refused` or an `Absent` is returned,
because their meaning differs by service.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimesUp
from functools import partial
from typing import Any, NoReturn, TypeAlias

import grpc

from peloton.actors.job.messages import GetJob, JobView
from peloton.actors.job.slice.messages import (
    InstanceView,
    ListInstances,
    slice_key,
)
from peloton.actors.respool.messages import (
    ROOT,
    GetPool,
    GetPoolHistory,
    ListPools,
    PoolHistory,
    PoolView,
)
from peloton.actors.task.messages import SLICE_SIZE, TaskGoals
from peloton.gateway.access import details
from peloton.gateway.access.hidden import answer_of_nothing
from peloton.gateway.access.permissions import Permissions, Rights
from peloton.gateway.access.principals import SharedQuota
from peloton.gateway.cluster.listing import gather
from peloton.gateway.server.calls import CallContext, Later, is_hidden
from peloton.gateway.server.execution import REAL
from peloton.gateway.translate.strategy_choice import STANDARD_STRATEGIES, StrategyChoice
from peloton.gateway.translate.texts import client_name
from peloton.runtime.core.reading.listing import Best, Listed, ListViews
from peloton.runtime.job_files import JobFileStore
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.secret_vault import SecretVault
from peloton.runtime.vocabulary import (
    DeadLettered,
    Key,
    Message,
    Query,
    Refused,
    ShardDamaged,
    Unavailable,
)
from peloton.settings.notify import NO_URLS, AllowedUrls

CALL_ASK_S_MAX = 15.0
"""How long one request may take, even if the client's deadline is later."""
RETRY_S = 0.5
"""When to repeat a call that was UNAVAILABLE: a moving shard has its next owner by then."""
ASKS_IN_FLIGHT_MAX = 8
"""Concurrent queries of one call: a listing of a large job must not fill the shards' inboxes."""
POOLS_PER_PAGE_MAX = 500
"""Pools in one answer: about ten milliseconds of the thread that all shards of a daemon share."""
AT_ONCE_S_MAX = 0.002
"""How long a listing may hold up the event loop; one that takes longer runs on a thread."""

Context: TypeAlias = grpc.ServicerContext
Code = grpc.StatusCode
ManyAsks: TypeAlias = Iterable[tuple[Key, Message | Query]]


def end(
    context: Context,
    code: grpc.StatusCode,
    *,
    text: str | Refused,
    field: str = "",
    retry_s: float | None = None,
) -> NoReturn:
    """End the call with a status.

    `text` may be a refusal, whose code is sent as the reason. `field`, the path of what is wrong
    in the request, is put before the text. `retry_s`: when a repeat may succeed, if it is safe.
    """
    refused = text if isinstance(text, Refused) else Refused("", text)
    said = context.said(refused.text) if isinstance(context, CallContext) else refused.text
    status = details.status(code, said, field=field, retry_s=retry_s, reason=refused.code)
    if status is not None:
        context.abort_with_status(status)
    context.abort(code, details.message(said, field=field))
    raise AssertionError("abort returned")


class ClusterClient:
    """The requests of one server's calls to one cluster."""

    def __init__(
        self,
        cluster: Region,
        permissions: Permissions | None = None,
        *,
        notify: AllowedUrls = NO_URLS,
        strategies: StrategyChoice = STANDARD_STRATEGIES,
        images_run: bool = False,
    ) -> None:
        """Take the cluster and the server's settings. Without `permissions` callers may do all.

        `notify`: where ends of jobs may be told. `strategies`: by which tasks may be placed.
        `images_run`: tasks with a container image are containers, if this daemon starts them.
        """
        self.cluster = cluster
        self.notify, self.images_run, self.strategies = notify, images_run, strategies
        # These are set before anything is served.
        self.secrets: SecretVault | None = None  # those of jobs, if there can be any
        self.files: JobFileStore | None = None  # of jobs, where we are beside the hosts
        self.execution = REAL  # what the calls run on, and by which clocks
        self.on_mesos = False  # whether hosts are those of Mesos, which do more for tasks
        self.permissions = permissions if permissions is not None else Permissions()
        self.places: list[SharedQuota] = []
        """What callers share a limited number of."""

    def shared(self, what: str) -> SharedQuota:
        """Return the places of this name, of which `SharedQuota` limits what callers may take."""
        self.places.append(SharedQuota(what))
        return self.places[-1]

    def take_quota(
        self, places: SharedQuota, context: Context, *, most: int, text: str = "{}"
    ) -> None:
        """Take a place for a call, or end it; `text` is around the reason."""
        why = places.take(
            self.permissions.whose(context),
            lambda: self.permissions.rights(context) is None,
            most=most,
        )
        if why:
            end(context, Code.RESOURCE_EXHAUSTED, text=text.format(why))

    def wait(
        self,
        future: Future[Any],
        context: Context,
        *,
        of: str = "the cluster",
        safe: bool = True,
        changes: bool = False,
    ) -> Any:
        """Return the answer; without one, end the call.

        `safe`: the client may repeat the call. `changes`: it is a command and not a query.
        """
        retry_s = RETRY_S if safe else None
        if not changes:
            _end_abandoned(context)
        left_s = context.time_remaining()
        try:
            wait_s = CALL_ASK_S_MAX if left_s is None else min(CALL_ASK_S_MAX, left_s)
            answer = context.await_answer(future, wait_s)
        except TimesUp:
            future.cancel()
            _end_late(context, of=of, changes=changes, retry_s=retry_s)
        return self._answered(answer, context, retry_s=retry_s)

    def _answered(self, answer: Any, context: Context, *, retry_s: float | None) -> Any:
        if isinstance(answer, ShardDamaged):
            # Not UNAVAILABLE, which clients repeat: nothing changes until an operator has acted.
            end(context, Code.DATA_LOSS, text=answer.text)
        if isinstance(answer, Unavailable):
            end(context, Code.UNAVAILABLE, text=answer.text, retry_s=retry_s)
        if isinstance(answer, DeadLettered):
            text = f"the command failed repeatedly and is now a dead letter: {answer.text}"
            end(context, Code.INTERNAL, text=text)
        return answer

    def ask(
        self,
        to: Key,
        message: Message | Query,
        *,
        context: Context,
        request: tuple[str, bytes] | None = None,
    ) -> Any:
        """Send a command or a query to one entity and wait for the answer."""
        _end_abandoned(context)
        # A query changes nothing, so its principal is not recorded.
        if is_hidden(context):
            return answer_of_nothing(message)
        changes = not isinstance(message, Query)
        who = self.permissions.whose(context).text if changes else ""
        future = self.cluster.ask(to, message, request=request, who=who)
        # A command without a request key might be done twice.
        safe = request is not None or not changes
        return self.wait(future, context, of=to, safe=safe, changes=changes)

    def command_later(
        self,
        to: Key,
        command: Message,
        *,
        context: Context,
        request: tuple[str, bytes] | None,
        encode: Callable[[Any], bytes],
    ) -> Later:
        """Send a command without waiting; `encode` makes of its answer that of the call."""
        who = self.permissions.whose(context).text
        future = self.cluster.ask(to, command, request=request, who=who)
        retry_s = RETRY_S if request is not None else None
        return Later(
            future,
            lambda answer: encode(self._answered(answer, context, retry_s=retry_s)),
            lambda: _end_late(context, of=to, changes=True, retry_s=retry_s),
            CALL_ASK_S_MAX,
        )

    def each(self, asks: ManyAsks, context: Context, *, changes: bool = False) -> Iterator[Any]:
        """Yield the answers to many queries, or to commands, in order; a few are sent ahead."""
        ask: Callable[..., Future[Any]] = self.cluster.ask
        if changes:
            ask = partial(ask, who=self.permissions.whose(context).text)
        waiting: deque[Future[Any]] = deque()
        rest = iter(asks)
        for each in itertools.islice(rest, ASKS_IN_FLIGHT_MAX):
            waiting.append(ask(*each))
        while waiting:
            answer = self.wait(waiting.popleft(), context, safe=not changes, changes=changes)
            waiting.extend(ask(*each) for each in itertools.islice(rest, 1))
            yield answer

    # ---- queries of several services ----

    def pool(self, query: GetPool, context: Context) -> tuple[PoolView, ...]:
        """Return a pool and those above it, the root last; nothing if there is no such pool."""
        return self._of_pools(query, context)

    def pools(self, context: Context, *, parent: Key | None = None) -> dict[Key, PoolView]:
        """Return every pool, parents before children; or the children of one only.

        They are read in pages, because a shard answers between two turns. A pool that exists under
        one name during the whole call is always found, whatever others are created or deleted.
        """
        return all_pages(lambda query: self._of_pools(query, context), parent=parent)

    def _of_pools(self, query: Query, context: Context) -> tuple[PoolView, ...]:
        if is_hidden(context):
            return ()
        found = self.ask(ROOT, query, context=context)
        if not isinstance(found, tuple):
            # Otherwise the answer would be that the pool does not exist.
            text = f"{ROOT} is not created yet: the cluster is still starting"
            end(context, Code.UNAVAILABLE, text=text, retry_s=RETRY_S)
        return found

    def pool_history(self, path: str, context: Context) -> PoolHistory | None:
        """Return what a pool held, hour by hour; None if there is no such pool."""
        if is_hidden(context):
            return None
        found = self.ask(ROOT, GetPoolHistory(path), context=context)
        if isinstance(found, PoolHistory):
            return found
        # No answer of a root that is not there, either: then nothing is known of any pool.
        self.pool(GetPool(path=path), context)
        return None

    def job(self, key: Key | None, context: Context) -> JobView | None:
        """Return a job, or None if it does not exist."""
        if key is None:
            return None
        found = self.ask(key, GetJob(), context=context)
        return found if isinstance(found, JobView) else None

    def rights(self, context: Context) -> Rights | None:
        """Return what the caller may see; None if that is everything."""
        return self.permissions.rights(context)

    def listing(self, query: ListViews, context: Context) -> Listed:
        """Return the matching summaries of all shards; a shard that does not answer ends the
        call."""

        def wait(future: Future[Any]) -> Listed:
            found = self.wait(future, context)
            if not isinstance(found, Listed):
                end(context, Code.INTERNAL, text="a shard answered a listing with something else")
            return found

        return gather(self.cluster, query, wait=wait)

    def listing_at_once(self, query: ListViews) -> Listed | None:
        """Return a listing on the event loop; None if that needs other daemons or much time."""
        best, late_s = Best(query), time.monotonic() + AT_ONCE_S_MAX
        for shard in self.cluster.shards_of(query.kind):
            page = self.cluster.read(shard, best.narrowed())
            if not isinstance(page, Listed) or page.after or time.monotonic() > late_s:
                return None
            best.add(page)
        return best.listed()

    @property
    def inventories(self) -> int:
        """Return how many inventories the hosts of the cluster are in."""
        return max(1, len(self.cluster.shards_of("inventory")))

    def instances(
        self,
        job: JobView,
        start: int = 0,
        *,
        context: Context,
        stop: int | None = None,
        unadded: bool = False,
    ) -> Iterator[InstanceView]:
        """Yield instances start … stop - 1 of a job, ascending, all of them by default.

        `unadded`: with those that a workflow has still to add, as they are going to be. Instances
        of a slice that is not opened yet are shown in their initial state; of those beyond the
        count of the spec the ones that an aborted update has left.
        """
        stop = job.reach if stop is None else min(stop, job.reach)
        if start >= stop:
            return
        numbers = range(start // SLICE_SIZE, (stop - 1) // SLICE_SIZE + 1)
        job_id = client_name(job.summary.job)
        asked = ListInstances(start, stop, unadded)
        asks = [(slice_key(job_id, number), asked) for number in numbers]
        for number, answer in zip(numbers, self.each(asks, context), strict=True):
            views = {v.instance: v for v in answer} if isinstance(answer, tuple) else {}
            if job.spec.is_daemon:  # most numbers have no host
                yield from (views[instance] for instance in sorted(views))
                continue
            first = number * SLICE_SIZE
            for instance in range(max(first, start), min(first + SLICE_SIZE, stop)):
                if instance in views:
                    yield views[instance]
                elif instance < job.spec.instances and (unadded or not job.adds):
                    yield unopened(job, instance)


def _end_abandoned(context: Context) -> None:
    """Stop the work of a call that no client waits for."""
    if getattr(context, "cancelled", False):
        end(context, Code.CANCELLED, text="nobody waits for the answer any more")


def _end_late(context: Context, *, of: str, changes: bool, retry_s: float | None) -> NoReturn:
    text = f"no answer in time from {of}"
    if changes:
        text += "; a change may have happened nevertheless: check, then repeat"
    end(context, Code.UNAVAILABLE, text=text, retry_s=retry_s)


def all_pages(
    ask: Callable[[ListPools], tuple[PoolView, ...]],
    *,
    parent: Key | None = None,
    most: int = POOLS_PER_PAGE_MAX,
) -> dict[Key, PoolView]:
    """Return the pools of all pages, in their order."""
    found: dict[Key, PoolView] = {}
    after: tuple[tuple[str, Key], ...] | None = None
    while True:
        page = ask(ListPools(most, after, parent))
        known = len(found)
        found.update((view.pool, view) for view in page)
        if len(page) != most or len(found) == known:
            return found
        after = _path_from_root(page[-1], found)


def _path_from_root(view: PoolView, pools: Mapping[Key, PoolView]) -> tuple[tuple[str, Key], ...]:
    """Return names and keys of the pools from below the root to this one, as far as they are
    known."""
    way: list[tuple[str, Key]] = []
    at: PoolView | None = view
    while at is not None and at.pool != ROOT:
        way.append((at.config.name, at.pool))
        at = pools.get(at.config.parent)
    return tuple(reversed(way))


def unopened(job: JobView, instance: int) -> InstanceView:
    """Return the view of an instance that does not exist yet, although its job does."""
    return InstanceView(
        instance=instance,
        state="INITIALIZED",
        goal=TaskGoals(int(job.goal)),
        run=1,
        failures=0,
        host="",
        created_at=job.summary.created_at,
        launched_at=None,
        started_at=None,
        ended_at=None,
        outcome=None,
        runs=(),
        config=job.spec.default,
        code="NEW",
        because=job.blocked_by or "its slice is being opened",
    )
