"""The rules by which hosts do not fit an instance, each with how many, and what would help.

The counts that a placer gave the slice become typed blockers.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.lockdown.messages import ENGINE, LAUNCH
from peloton.actors.resources import Resources, amount
from peloton.gateway.access.lockdowns import SUBJECTS, unlocking
from peloton.gateway.translate.reasons import waits_for_own_host
from peloton.ops.v1 import ops_pb2 as ops
from peloton.placement import reasons as r
from peloton.placement.messages import Shape
from peloton.placement.planning import HostsNow

RULES = MappingProxyType(
    {
        r.MISMATCH_STATUS: (
            "not up, draining, or just refused it",
            "bring them up: `peloton host list` says what each waits for",
        ),
        r.NO_OFFER: ("nothing free", "wait until tasks there end"),
        r.INSUFFICIENT: ("too little free for {request}", "so much is free on one of them"),
        r.SCARCE: ("kept for tasks with gpus", "request a gpu, or do not keep them for gpus"),
        r.MISMATCH_CONSTRAINTS: (
            "its constraint is not met, or they are exclusive to others",
            "add a host that meets the constraint, or change it",
        ),
        r.PORT_TAKEN: (
            "its fixed port is taken",
            "wait until whoever uses it ends, or change the port",
        ),
        r.UNKNOWN_TASKS: (
            "the labels of their tasks are not known",
            "run fewer different labels there, or name no tasks in the constraint",
        ),
        r.HOST_LIMIT: (
            "as many of these instances as may be there",
            "wait until one of those ends",
        ),
        r.QUARANTINED: (
            "quarantined after failures of several jobs",
            "release them: `peloton host list` says why",
        ),
        r.UNKNOWN_STRATEGY: ("its strategy is unknown", "choose a known strategy"),
    }
)
"""What the hosts that fail a check have in common, and what has to change of that."""

UNITS = {"memory": " MB", "disk": " MB"}


def blockers_of_hosts(view: InstanceView) -> Iterator[ops.Blocker]:
    """Yield a blocker for each rule that hosts fail, first the proof that none could ever run
    it."""
    request = request_text(_wanted(view))
    counts = [(rule, hosts) for rule, hosts in view.counts if hosts]
    if waits_for_own_host(view):
        change = "bring it up: `peloton host list` says what it waits for"
        yield ops.Blocker(code="hosts", text=view.because, change=change)
    elif view.code == "NEVER":
        known = sum(hosts for _, hosts in counts)
        yield never_of_hosts(view.because, hosts=known, request=request)
    elif view.code == "GANG" or not counts:
        change = "wait until a placer answers" if view.code == "HOST" else "mend what is said there"
        code = "gang" if view.code == "GANG" else "other"
        yield ops.Blocker(code=code, text=view.because, change=change)
    for rule, hosts in counts:
        if rule == r.LAUNCHES_STOPPED:
            component = ENGINE if view.because.startswith(SUBJECTS[ENGINE]) else LAUNCH
            yield ops.Blocker(code="lockdown", text=view.because, change=unlocking(component))
        else:
            yield blocker_of_rule(rule, hosts, request=request)


def _wanted(view: InstanceView) -> Resources:
    """Return what an instance wishes for: before its first run also room for its volume."""
    resources, volume = view.config.resources or Resources(), view.config.volume
    return resources if volume is None or view.runs else resources + volume.room


def never_of_hosts(text: str, *, hosts: int, request: str) -> ops.Blocker:
    """Return the blocker that none of so many hosts could run it, even empty; or all could hold
    no gang."""
    if text.startswith(r.NEVER_TOGETHER):
        return ops.Blocker(
            code="no-host-ever",
            text=text,
            change="add hosts that hold all of it at once, or request less",
            never=True,
            proof="what all hosts together could hold was counted as if they were empty",
        )
    return ops.Blocker(
        code="no-host-ever",
        text=text,
        change=f"add a host with at least {request} that meets the constraint, or request less",
        never=True,
        proof=f"each of the {hosts} hosts was checked as if it were empty, and none fits",
    )


def blocker_of_rule(rule: str, hosts: int, *, request: str) -> ops.Blocker:
    """Return the blocker that so many hosts fail this check first."""
    has, change = RULES.get(rule, (rule, "wait until that changes"))
    return ops.Blocker(
        code="hosts",
        text=f"{hosts} {'host' if hosts == 1 else 'hosts'}: {has.format(request=request)}",
        change=change,
        rule=rule,
        hosts=hosts,
    )


def blockers_of_shape(shape: Shape, now: HostsNow) -> Iterator[ops.Blocker]:
    """Yield why no host would take it now; nothing if one would."""
    found = now.found(shape)
    if found.fitting:
        return
    counts = [(rule, hosts) for rule, hosts in found.why.reasons if hosts]
    request = request_text(shape.resources)
    if found.why.never:
        total = sum(hosts for _, hosts in counts)
        yield never_of_hosts(found.why.text, hosts=total, request=request)
    for rule, hosts in counts:
        yield blocker_of_rule(rule, hosts, request=request)


def request_text(of: Resources) -> str:
    """Return what a task requests, in a line."""
    pairs = zip(Resources.KINDS, of.amounts(), strict=True)
    texts = [f"{kind} {amount(each):.10g}{UNITS.get(kind, '')}" for kind, each in pairs if each]
    return ", ".join(texts) or "nothing"
