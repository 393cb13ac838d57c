"""What clients read of the report of a pool.

The report becomes the message of the plans service, with only the pools that the caller may see.
"""

from __future__ import annotations

from collections.abc import Iterator

from peloton.actors.resources import amount
from peloton.actors.respool.messages import FillStage, PoolHistory, PoolHour, PoolView
from peloton.actors.respool.pool_report import PoolReport
from peloton.gateway.access.permissions import Rights
from peloton.gateway.ops.hosts import amounts
from peloton.gateway.translate.translate_pool import POOL_KINDS, standing_of
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import plans_pb2 as wire
from peloton.settings.permissions_file import Permission

UNITS = 1e6
"""Shares are counted in millionths."""


def report_of(found: PoolReport, *, rights: Rights | None, text: str) -> wire.ExplainPoolResponse:
    """Return the answer; `text` says what others do for those that wait."""

    def seen(view: PoolView) -> bool:
        return rights is None or rights.sees_pool(view.path)

    told = rights is None or rights.may(Permission.SEE, found.pool.path)
    answer = wire.ExplainPoolResponse(
        pool=standing_of(found.pool),
        siblings=map(standing_of, filter(seen, found.siblings)),
        children=map(standing_of, filter(seen, found.children)),
        waiting_in_all=found.waiting_in_all,
        text=text if told else "",
    )
    if found.above is not None and seen(found.above):
        answer.above.CopyFrom(standing_of(found.above))
    for kind, steps in zip(POOL_KINDS, found.steps, strict=False):  # slack has no terms of its own
        answer.steps.add(
            kind=kind,
            divided=amount(steps.divided),
            need=amount(steps.need),
            by_reservation=amount(steps.by_reservation),
            by_need=amount(steps.by_need),
            offered=amount(steps.offered),
            entitlement=amount(steps.entitled),
            reserved_in_all=amount(steps.reserved),
            needed_in_all=amount(steps.beyond),
            shares_in_all=steps.shares / UNITS,
            scaled_down=steps.stage is FillStage.RESERVED,
        )
    answer.waiting.extend(_waiting(found, told=told))
    answer.giving.extend(_giving(found, rights))
    return answer


def _waiting(found: PoolReport, *, told: bool) -> Iterator[wire.WaitingTasks]:
    """Yield waiting tasks; their owners, and what blocks them, only if the caller may see jobs
    of the pool."""
    for lot in found.waiting:
        yield wire.WaitingTasks(
            job=lot.job if told else "",
            instances=lot.tasks,
            priority=lot.priority,
            need=amounts(lot.need),
            gang=lot.gang,
            text=lot.because if told else "",
        )


def _giving(found: PoolReport, rights: Rights | None) -> Iterator[wire.GivingTasks]:
    for each in found.giving:
        if rights is None or rights.may(Permission.SEE, each.pool):
            yield wire.GivingTasks(
                pool=each.pool,
                job=each.job,
                instances=each.tasks,
                amount=amounts(each.amount),
                text=each.reason,
            )


def history_of(found: PoolHistory) -> ops.PoolHistoryResponse:
    """Return the hours that are kept, and the one that is open."""
    answer = ops.PoolHistoryResponse(path=found.path, hours=map(_hour, found.kept))
    if found.open is not None:
        answer.hours.append(_hour(found.open))
        answer.hours[-1].open = True
    return answer


def _hour(hour: PoolHour) -> ops.PoolHour:
    return ops.PoolHour(
        began=hour.began,
        ended=hour.ended,
        held=amounts(hour.used),
        borrowed=amounts(hour.borrowed),
        unused=amounts(hour.unused),
        given_back=amounts(hour.given),
        tasks=hour.tasks,
    )
