"""The gate of each method: may this call go on, and what does the audit log record of it?

A gate applies `access_table.py` to a request before its method sees it. What the caller may not see
is marked as hidden on the call, and then answered as if it did not exist (`ClusterClient`); a
visible object with which the caller may not do this ends the call with PERMISSION_DENIED. On the
thread that all calls share a gate never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from google.protobuf import descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from peloton.actors.job.messages import GetJob, JobView
from peloton.actors.respool.messages import ROOT, GetPool, PoolView
from peloton.actors.schedule.messages import GetSchedule, ScheduleView
from peloton.gateway.access.access_table import AccessRow
from peloton.gateway.access.permissions import Rights
from peloton.gateway.access.targets import (
    ClusterTarget,
    JobTarget,
    KindTarget,
    NewPoolTarget,
    PoolTarget,
    RenamedPoolTarget,
    ScheduleTarget,
)
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, end
from peloton.gateway.server.audit import AuditEntry, AuditLog, AuditNote, ReadAnswer
from peloton.gateway.server.calls import CallContext
from peloton.gateway.server.served_calls import ServedCall
from peloton.runtime.core.principal import Principal
from peloton.runtime.vocabulary import Key, Query
from peloton.settings.permissions_file import ROOT_PATH, Permission

Look: TypeAlias = Callable[[Key, Query], Any]
"""Has the answer to a query."""


class UnlistedMethod(Exception):
    """A method has no row in the table of access, and must not be served."""


class _Waits(Exception):
    """The answer to a query has to be waited for."""


class Gates:
    """The gates of one server."""

    def __init__(
        self,
        cluster_client: ClusterClient,
        table: Mapping[str, AccessRow],
        *,
        audit: AuditLog | None = None,
    ) -> None:
        self._cluster_client = cluster_client
        self._table = table
        self._audit = audit

    def of(self, method: str) -> Gate | None:
        """Return the gate of a method by its full name; None if every call passes."""
        row = self._table.get(method)
        if row is None:
            raise UnlistedMethod(f"{method} has no row in the table of access")
        audit = self._audit if row.objects is not None else None
        checks = row.permission is not None and self._cluster_client.permissions.restricts
        if not checks and audit is None:
            return None
        return Gate(method, row, cluster_client=self._cluster_client, audit=audit)


class Gate:
    """The gate that each call of one method passes."""

    def __init__(
        self,
        method: str,
        row: AccessRow,
        *,
        cluster_client: ClusterClient,
        audit: AuditLog | None,
    ) -> None:
        self._method = method
        self._row = row
        self._cluster_client = cluster_client
        self._permissions = cluster_client.permissions
        self._audit = audit
        self._reads: ReadAnswer | None = None
        if audit is not None:
            described = descriptor_pool.Default().FindMethodByName(method)
            self._reads = ReadAnswer(GetMessageClass(described.output_type).FromString, row.made)

    def begin(self, call: ServedCall) -> None:
        """Begin a call: its end will be audited if it is a change."""
        if self._audit is not None:
            call.end_note = self._end_note(call, self._audit.add, whose=self._permissions.whose)

    def refused(self, call: ServedCall) -> None:
        """Audit a call whose caller is not admitted, as far as there is room."""
        if self._audit is not None:
            add = self._audit.add_refused
            call.end_note = self._end_note(call, add, whose=lambda context: context.principal)

    def at_once(self, request: Any, context: CallContext) -> bool:
        """Return whether the call may go on without waiting; end the call if it may not at all."""
        self._note(request, context)
        rights = self._permissions.rights(context)
        if rights is None:
            return True
        read = self._cluster_client.cluster.read

        def look(key: Key, query: Query) -> Any:
            found = read(key, query)
            if not isinstance(found, JobView | ScheduleView | tuple):
                raise _Waits
            return found

        try:
            self._check(request, context, rights=rights, look=look)
        except _Waits:
            return False
        return not context.hidden

    def check(self, request: Any, context: CallContext) -> None:
        """Check a call, waiting for what the check needs; afterwards the call may go on."""
        self._note(request, context)
        rights = self._permissions.rights(context)
        if rights is not None and not context.hidden:
            ask = self._cluster_client.ask
            self._check(
                request,
                context,
                rights=rights,
                look=lambda key, query: ask(key, query, context=context),
            )

    # ---- inside ----

    def _end_note(
        self,
        call: ServedCall,
        add: Callable[[AuditEntry], object],
        *,
        whose: Callable[[CallContext], Principal],
    ) -> AuditNote:
        return AuditNote(self._method, call, add=add, whose=whose, reads=self._reads)

    def _note(self, request: Any, context: CallContext) -> None:
        note = context.end_note
        if isinstance(note, AuditNote) and self._row.objects is not None:
            note.found(self._row.objects(request))

    def _check(self, request: Any, context: CallContext, *, rights: Rights, look: Look) -> None:
        permission, target = self._row.permission, self._row.target(request)
        if permission is None or target is None:
            return
        if isinstance(target, JobTarget):
            self._check_job(target, context, rights=rights, look=look)
        elif isinstance(target, ScheduleTarget):
            self._check_schedule(target, context, rights=rights, look=look)
        elif isinstance(target, ClusterTarget):
            self._deny(context, Permission.ADMINISTER, path=ROOT_PATH)
        elif isinstance(target, KindTarget):
            if not rights.may_with_kind(permission, target.kind):
                self._deny(context, permission, path=target.kind, where="kind ")
        else:
            self._check_pool(target, context, rights=rights, look=look)

    def _check_job(
        self, target: JobTarget, context: CallContext, *, rights: Rights, look: Look
    ) -> None:
        view = look(target.job, GetJob())
        if not isinstance(view, JobView):
            context.hide()  # there may be something left of it, such as its story
            return
        path = view.summary.pool_path or ROOT_PATH
        self._check_owned(path, context, rights=rights, by=view.created_by)

    def _check_schedule(
        self, target: ScheduleTarget, context: CallContext, *, rights: Rights, look: Look
    ) -> None:
        for key in target.meant_by(self._permissions.whose(context)):
            view = look(key, GetSchedule())
            if isinstance(view, ScheduleView):
                break
        else:
            context.hide()
            return
        context.is_of(key)  # the method must not find another one
        line = view.summary
        self._check_owned(line.pool_path, context, rights=rights, by=line.created_by)

    def _check_owned(self, path: str, context: CallContext, *, rights: Rights, by: str) -> None:
        """Check an object that was created in the pool at this path."""
        permission = self._row.permission
        assert permission is not None
        if not rights.may_with_job(Permission.SEE, path, created_by=by):
            context.hide()
            return
        if not rights.may_with_job(permission, path, created_by=by):
            self._deny(context, permission, path=path)
        context.is_about(path)

    def _check_pool(
        self,
        target: PoolTarget | NewPoolTarget | RenamedPoolTarget,
        context: CallContext,
        *,
        rights: Rights,
        look: Look,
    ) -> None:
        found = look(ROOT, _query_of(target))
        if not isinstance(found, tuple):
            # Otherwise nobody could be refused before the root is there.
            end(context, Code.UNAVAILABLE, text=f"{ROOT} is not created yet")
        permission = self._row.permission
        assert permission is not None
        if not found or not rights.sees_pool(found[0].path):
            context.hide()
            return
        context.is_about(found[0].path)
        if permission != Permission.SEE:
            for path in _paths_of(target, found):
                if not rights.may(permission, path):
                    self._deny(context, permission, path=path)
            subtrees = _subtrees_of(target, found) if permission == Permission.ADMINISTER else []
            for path in subtrees:
                if not rights.may_below(permission, path):
                    self._deny(context, permission, path=path, where="each pool ruled below ")

    def _deny(
        self, context: CallContext, permission: Permission, *, path: str, where: str = "pool "
    ) -> NoReturn:
        principal = self._permissions.whose(context)
        name = principal.name or "a client that gave no name"
        name += "" if principal.authenticated else " (unverified)"
        text = f"{self._method}: {name} has no permission to {permission} in {where}{path}"
        end(context, Code.PERMISSION_DENIED, text=text)


def _query_of(target: PoolTarget | NewPoolTarget | RenamedPoolTarget) -> GetPool:
    if isinstance(target, PoolTarget):
        return target.query
    key = target.parent if isinstance(target, NewPoolTarget) else target.pool
    return GetPool(key, config_only=True)


def _paths_of(
    target: PoolTarget | NewPoolTarget | RenamedPoolTarget, found: tuple[PoolView, ...]
) -> list[str]:
    """Return the paths at which the permission is needed: also where a pool will be found by its
    name."""
    pool = found[0]
    if isinstance(target, NewPoolTarget):
        return [pool.path, _below(pool.path, target.name)]
    if isinstance(target, RenamedPoolTarget) and len(found) > 1 and target.name:
        return [pool.path, _below(found[1].path, target.name)]
    return [pool.path]


def _subtrees_of(
    target: PoolTarget | NewPoolTarget | RenamedPoolTarget, found: tuple[PoolView, ...]
) -> list[str]:
    """Return the paths below which other rules apply afterwards to the same pools, or to other
    ones."""
    path = found[0].path
    if isinstance(target, RenamedPoolTarget):
        paths = _paths_of(target, found)
        return [] if paths[-1] == path else paths
    return [path] if isinstance(target, PoolTarget) else []


def _below(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"
