"""`peloton pool`: the state of the pools, from Peloton's own service.

The commands of the original are `respool`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from peloton.cli.cluster.plan import AMOUNTS, amounts_text, number, whose_job
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import OwnCommand
from peloton.cli.shared.output import OutputForms, show
from peloton.cli.shared.session import connected
from peloton.cli.shared.times import moment_text
from peloton.cli.shared.watching import watched

HEADER = (
    "Pool", "Kind", "Reservation", "Limit", "Share", "Type", "Entitlement", "Demand", "Allocation",
    "Slack",
)  # fmt: skip

HISTORY_HEADER = (
    "From", "To", "Kind", "Held", "Borrowed", "Unused", "Given Back", "Tasks Ended",
)  # fmt: skip

pool = LazyGroup(
    name="pool",
    help="Show what each pool is promised, may use, uses and waits for.",
    table={
        "list": LazyCommand(
            f"{__name__}:list_", "List pools: reservation, entitlement, demand, allocation."
        ),
        "explain": LazyCommand(
            f"{__name__}:explain", "Explain a pool: how it came to what it may use, who waits."
        ),
        "history": LazyCommand(
            f"{__name__}:history", "Show what a pool held, borrowed and left to others, by hour."
        ),
    },
)


@click.command("list", cls=OwnCommand)
@watched
def list_() -> None:
    """List the pools, with a line for each kind of resource.

    \b
    Reservation, Limit, Share, Type   what the config of the pool says
    Entitlement  what it may use as the capacity is divided now
    Demand       what tasks request that wait, here or in a pool below
    Allocation   what tasks hold that are admitted, here or in a pool below
    Slack        of that, what runs on what others leave unused

    cpus and gpus, and MB of memory and disk.
    """
    with connected() as peloton:
        answer = peloton.ops.pools()
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: rows(answer.pools),
            names=lambda: [one.path for one in answer.pools],
            nothing="No pools.",
        )
    )


def rows(pools: Iterable[Any]) -> Iterator[tuple[object, ...]]:
    """Yield one row for each kind of resource of a pool."""
    for one in pools:
        for kind in one.kinds:
            yield (
                one.path, kind.kind, f"{kind.reservation:.10g}", f"{kind.limit:.10g}",
                f"{kind.share:.10g}", kind.type, number(kind.entitlement), number(kind.demand),
                number(kind.allocation), number(kind.slack),
            )  # fmt: skip


@click.command(cls=OwnCommand)
@click.argument("path")
@watched
def explain(path: str) -> None:
    """Explain the pool at PATH: how it came to what it may use, who lends, who waits.

    The capacity is divided from the root down, kind by kind: first each pool gets what it needs of
    its reservation, then of what it needs beyond that by share, then of what nobody needs. It is
    calculated on a copy, and changes nothing. Kinds of which there is nothing are left out.

    \b
    peloton pool explain /research
    peloton pool explain / -o json
    """
    with connected() as peloton:
        answer = peloton.plans.explain(path)
    show(OutputForms(answer, lines=[*report_lines(answer)], names=lambda: [answer.pool.path]))


def report_lines(answer: Any) -> Iterator[str]:
    """Yield an account for people."""
    for kind in answer.pool.kinds:
        steps = next((each for each in answer.steps if each.kind == kind.kind), None)
        if steps is not None and (steps.divided or steps.need or kind.allocation):
            yield from step_lines(answer, kind, steps=steps)
    if answer.siblings:
        yield "beside it:"
        yield from standing_lines(answer.siblings)
    if answer.children:
        yield "below it:"
        yield from standing_lines(answer.children)
    yield from queue_lines(answer)


def step_lines(answer: Any, kind: Any, *, steps: Any) -> Iterator[str]:
    """Yield how a pool came to its entitlement to one kind, step by step, and what it uses of
    it."""
    above = answer.above.path or "the pool above"
    yield (
        f"{kind.kind}: entitled to {number(steps.entitlement)} of the {number(steps.divided)} of "
        f"{above}; it needs {number(steps.need)}, and holds {number(kind.allocation)}"
    )
    if steps.scaled_down:
        yield (
            f"  {number(steps.by_reservation)} of its reservation of {number(kind.reservation)}: "
            f"{number(steps.reserved_in_all)} of all reservations are needed, which is more than "
            f"there is, so each is served in proportion"
        )
    else:
        needed = "all, as it is STATIC" if kind.type == "STATIC" else "what it needs"
        yield (
            f"  {number(steps.by_reservation)} of its reservation of {number(kind.reservation)}: "
            f"{needed}"
        )
        left = max(0.0, steps.divided - steps.reserved_in_all)
        yield (
            f"  {number(steps.by_need)} of what it needs beyond that: {number(left)} are left, "
            f"{number(steps.needed_in_all)} are needed, its share is {number(kind.share)} of "
            f"{number(steps.shares_in_all)}"
        )
        yield (
            f"  {number(steps.offered)} of what nobody needs: by share, up to its limit of "
            f"{number(kind.limit)}"
        )
    yield f"  {loan_text(kind)}"


def loan_text(kind: Any) -> str:
    """Return text about what a pool borrows or lends."""
    if kind.allocation > kind.entitlement:
        return f"it gives back {number(kind.allocation - kind.entitlement)} when others need it"
    if kind.allocation > kind.reservation:
        return f"it borrows {number(kind.allocation - kind.reservation)} beyond its reservation"
    if kind.reservation > kind.allocation:
        return f"it lends {number(kind.reservation - kind.allocation)} of its reservation"
    return "it lends nothing, and borrows nothing"


def standing_lines(pools: Iterable[Any]) -> Iterator[str]:
    """Yield a line for each pool and kind in use or in demand."""
    for one in pools:
        shown = [kind for kind in one.kinds if kind.allocation or kind.demand or kind.reservation]
        for kind in shown:
            yield (
                f"  {one.path}: {kind.kind} {number(kind.allocation)} held, "
                f"{number(kind.demand)} waited for, entitled to {number(kind.entitlement)}; "
                f"{loan_text(kind)}"
            )
        if not shown:
            yield f"  {one.path}: unused"


def queue_lines(answer: Any) -> Iterator[str]:
    """Yield which jobs wait, and which give back."""
    yield f"{answer.waiting_in_all} tasks wait" + (f": {answer.text}" if answer.text else "")
    for lot in answer.waiting:
        gang = ", a gang" if lot.gang else ""
        yield (
            f"  {whose_job(lot.job)}: {lot.instances} of priority {lot.priority}{gang}, "
            f"{amounts_text(lot.need)}" + (f": {lot.text}" if lot.text else "")
        )
    shown = sum(lot.instances for lot in answer.waiting)
    if answer.waiting_in_all > shown:
        yield f"  and {answer.waiting_in_all - shown} more"
    for each in answer.giving:
        yield (
            f"giving back: {each.instances} of job {each.job} in pool {each.pool}, which hold "
            f"{amounts_text(each.amount)}" + (f": {each.text}" if each.text else "")
        )


@click.command(cls=OwnCommand)
@click.argument("path")
@watched
def history(path: str) -> None:
    """Show what the pool at PATH, with those below it, held, borrowed and left to others.

    \b
    Held        by its tasks
    Borrowed    of that, beyond its reservation
    Unused      what it left of its reservation, which others may have borrowed
    Given Back  what tasks held that were ended for others
    All of it is for an hour: one cpu for two hours is 2.

    A line stands for an hour or more, in which something changed. The last 48 are kept, and the
    last one is not over. Between two of them is a gap where the owner of the pools changed.

    \b
    peloton pool history /research
    peloton pool history / -o json
    """
    with connected() as peloton:
        answer = peloton.ops.pool_history(path)
    show(
        OutputForms(
            answer,
            header=HISTORY_HEADER,
            rows=lambda: hour_rows(answer.hours),
            nothing="Nothing was in use since the owner of the pools began.",
            names=lambda: [answer.path],
        )
    )


def hour_rows(hours: Iterable[Any]) -> Iterator[tuple[object, ...]]:
    """Yield one row for each kind of an hour of which there is anything."""
    for hour in hours:
        columns = hour.held, hour.borrowed, hour.unused, hour.given_back
        until = "now" if hour.open else moment_text(hour.ended)
        for field, name, _ in AMOUNTS:
            values = [getattr(column, field) for column in columns]
            if any(values):
                yield (
                    moment_text(hour.began), until, name, *(number(value) for value in values),
                    hour.tasks or "",
                )  # fmt: skip
