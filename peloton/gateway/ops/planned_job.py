"""A job that does not exist: its lots and wishes as its slices would make them, and its waits.

A checked request becomes the questions to pools and placers, and their answers typed waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from peloton.actors.job.slice.configs import SpecRow, spec_rows
from peloton.actors.job.slice.messages import SliceOpening, slice_key
from peloton.actors.mentions import job_mention
from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import LotShape, LotWaits
from peloton.actors.respool.planning import LotsPlan, NewLot
from peloton.actors.task.messages import SLICE_SIZE, crowd_key
from peloton.gateway.ops.blockers import blockers_of_lot, estimate_of
from peloton.gateway.ops.host_rules import (
    blocker_of_rule,
    blockers_of_shape,
    never_of_hosts,
    request_text,
)
from peloton.gateway.translate.reasons import CODE_OF_RULE, NEVER_RUNS
from peloton.gateway.translate.translate_job import ParsedJob
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import plans_pb2 as wire
from peloton.placement.messages import GangPart, GangWish, Unplaced, Wish
from peloton.placement.planning import HostsNow, HostsPlan
from peloton.runtime.vocabulary import Bits, Key

PLAN_ID = "plan"
"""No job has this id: ids are UUIDs."""


class PlannedRow(NamedTuple):
    """Members of one slice with one config, as far as their job lets them begin at once."""

    slice_number: int
    row: SpecRow
    members: Bits


class PlannedJob:
    """A job as it would be created now."""

    def __init__(self, parsed: ParsedJob) -> None:
        self._spec = parsed.spec
        limits = [parsed.spec.instances, parsed.spec.maximum_running or parsed.spec.instances]
        if parsed.spec.throttle is not None:
            limits.append(parsed.spec.throttle.count)
        begin = min(limits)
        # Only a throttle lets fewer begin than are of the gang, and no part of that starts.
        self._begin = begin if begin >= parsed.spec.gang else 0
        self._rows = [*self._planned_rows(parsed)]

    def lots(self) -> list[NewLot]:
        """Return the lots, with all members that may begin."""
        found: dict[Key, NewLot] = {}
        for number, row, members in self._rows:
            if members:
                crowd = crowd_key(PLAN_ID, number)
                known = found.get(row.lot, NewLot(row.lot, row.lot_shape, crowd, Bits()))
                found[row.lot] = known._replace(members=known.members | members)
        gang = sum(lot.shape.gang for lot in found.values())
        return [lot._replace(gang_lots=gang) if lot.shape.gang else lot for lot in found.values()]

    def wishes(self, admitted: Mapping[Key, Bits]) -> list[Wish | GangWish]:
        """Return what the slices would wish for, for the members that are admitted."""
        priority = self._spec.priority
        found: list[Wish | GangWish] = []
        parts: list[GangPart] = []
        for number, row, members in self._rows:
            some = members & admitted.get(row.lot, Bits())
            if some and row.lot_shape.gang:
                parts.append(GangPart(some, row.first_shape))
            elif some:
                slice_ = slice_key(PLAN_ID, number)
                found.append(Wish(slice_, len(found) + 1, some, row.first_shape, priority=priority))
        if parts:
            first = slice_key(PLAN_ID, 0)
            found.insert(0, GangWish(first, len(found) + 1, tuple(parts), priority=priority))
        return found

    def waits(
        self, plan: LotsPlan, hosts: HostsPlan, *, now: HostsNow
    ) -> Iterator[wire.PlannedWait]:
        """Yield all that would wait: for its job's own rules, for its pools, for hosts."""
        spec = self._spec
        if spec.after:
            yield _own(
                spec.instances,
                "after",
                text="it waits for the jobs of peloton.after first; the rest of this plan is as if "
                "they had ended",
                change="these jobs end so",
            )
        if not self._begin:
            yield _own(
                spec.instances,
                "throttle",
                text=f"its gang of {spec.gang} starts as one, once peloton.throttle has let all of "
                "it begin",
                change="wait for the time of the last of them",
            )
        elif spec.instances > self._begin:
            rest = spec.instances - self._begin
            limit = spec.maximum_running == self._begin
            yield _own(
                rest,
                "job-limit" if limit else "throttle",
                text=f"{self._begin} may begin at once, by "
                + ("sla.maximumRunningInstances" if limit else "peloton.throttle"),
                change="wait until others of it end" if limit else "wait for the time of the next",
            )
        yield from self._for_pools(plan, now)
        yield from self._for_hosts(hosts)

    def _for_pools(self, plan: LotsPlan, now: HostsNow) -> Iterator[wire.PlannedWait]:
        """Yield what waits for its pools, alike lots as one, by the first of them."""
        rows = {row.lot: row for _, row, _ in self._rows}
        alike: dict[LotShape, tuple[LotWaits, int, SpecRow]] = {}
        for key, waits in plan.waits.items():
            shape = plan.shapes[key]
            first, count, row = alike.get(shape, (waits, 0, rows[key]))
            alike[shape] = first, count + len(waits.waiting), row
        for waits, count, row in alike.values():
            text = waits.because or f"queued in pool {waits.path}"
            behind = [*blockers_of_shape(row.first_shape, now)]
            yield wire.PlannedWait(
                instances=count,
                code=NEVER_RUNS if waits.never else CODE_OF_RULE.get(waits.rule, "pool-queue"),
                text=text.replace(f"{job_mention(PLAN_ID)} holds", "this job would hold"),
                never=waits.never or any(each.never for each in behind),
                blockers=[*blockers_of_lot(waits), *behind],
                estimate=estimate_of(waits.outlook, waits),
            )

    def _for_hosts(self, hosts: HostsPlan) -> Iterator[wire.PlannedWait]:
        alike: dict[tuple[str, str], tuple[Unplaced, int]] = {}
        for wish, each in hosts.unplaced:
            name = each.text, request_text(_most_of(wish))
            _, count = alike.get(name, (each, 0))
            alike[name] = each, count + len(each.members)
        for (text, request), (unplaced, count) in alike.items():
            found = wire.PlannedWait(
                instances=count,
                code=NEVER_RUNS if unplaced.never else "no-host-fits",
                text=text,
                never=unplaced.never,
                estimate=ops.Estimate(basis="it depends on when a host that fits has room"),
            )
            known = [(rule, number) for rule, number in unplaced.reasons if number]
            if unplaced.never:
                total = sum(number for _, number in known)
                found.blockers.append(never_of_hosts(text, hosts=total, request=request))
            found.blockers.extend(
                blocker_of_rule(rule, number, request=request) for rule, number in known
            )
            yield found

    def _planned_rows(self, parsed: ParsedJob) -> Iterator[PlannedRow]:
        spec = parsed.spec
        for number in range((spec.instances - 1) // SLICE_SIZE + 1):
            first = number * SLICE_SIZE
            opening = SliceOpening(
                job=PLAN_ID,
                name=spec.name,
                pool=spec.pool,
                count=min(SLICE_SIZE, spec.instances - first),
                default=spec.default,
                overrides=parsed.pieces.get(number, ()),
                labels=spec.labels,
                priority=spec.priority,
                preemptible=spec.preemptible,
                revocable=spec.revocable,
                spread=spec.spread,
                gang=0 if number else spec.gang,
                strategy=spec.strategy,
            )
            may_begin = Bits.span(0, max(min(self._begin - first, SLICE_SIZE), 0))
            for row, members in zip(*spec_rows(number, opening), strict=True):
                yield PlannedRow(number, row, members & may_begin)


def _most_of(wish: Wish | GangWish) -> Resources:
    """Return what the tasks of a wish request; of a gang, those that request most."""
    if isinstance(wish, Wish):
        return wish.shape.resources
    return max((part.shape.resources for part in wish.parts), key=Resources.amounts)


def _own(instances: int, code: str, *, text: str, change: str) -> wire.PlannedWait:
    return wire.PlannedWait(
        instances=instances,
        code=code,
        text=text,
        blockers=[ops.Blocker(code=code, text=text, change=change)],
        estimate=ops.Estimate(basis="it depends on how long instances run"),
    )
