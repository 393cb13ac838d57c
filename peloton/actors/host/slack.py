"""The slack of a host: how much there is, and whose runs end if there is less than they hold.

Slack is cpu that the host's other runs hold and do not use. Its configuration says how much, or its
backend measures it. If runs hold more slack than there is, some of those on slack end: that of the
lowest priority first, of equals the newest, and services last. Such an end is not charged to its
task, which queues again. The host is short of it already: so no job is asked whether it can spare
an instance, which is down then as after a failure. Runs that are not on slack are never ended here.
"""

from __future__ import annotations

from peloton.actors.host import facts as f
from peloton.actors.host.ledger import NamedRuns, RunSet, names_of
from peloton.actors.host.machine_messages import SlackReported
from peloton.actors.host.orders import stop_order
from peloton.actors.host.stages import RunPhase
from peloton.actors.host.state import Host, occupying_runs
from peloton.actors.resources import EPSILON, amount
from peloton.actors.task.messages import SLACK_TAKEN
from peloton.runtime.vocabulary import At, Bits, Decision, Key, counted, members_of

VICTIMS_MAX = 1000
"""Runs that are ended in one turn; the next turn follows at once."""


def slack_measured(host: Host, message: SlackReported, at: At) -> Decision:
    """Record the slack of its runs that the backend has measured."""
    known = None if host.declared is None else host.capacity.slack
    # It is part of the cpu that runs hold, whatever a program says of itself.
    slack = None if message.slack is None else min(message.slack, host.capacity.cpu)
    if known == slack:
        return Decision()
    return Decision(facts=(f.SlackMeasured(slack),), because="slack was measured")


def take_slack_back(host: Host, at: At) -> Decision | None:
    """End runs on slack until those that are left fit; return None if enough are ending already."""
    over = host.used.slack - host.capacity.slack
    if over < EPSILON:
        return None
    on_slack = [(crowd, one) for crowd, one in occupying_runs(host) if one.resources.slack]
    for _, one in on_slack:
        if one.phase == RunPhase.KILLING:
            over -= one.resources.slack * len(one.members)
    taken: NamedRuns = {}
    count = 0
    for crowd, one in sorted(on_slack, key=_turn):
        if over < EPSILON or count == VICTIMS_MAX:
            break
        if one.phase not in (RunPhase.ACCEPTED, RunPhase.STARTED):
            continue
        needed = -(-(over - EPSILON + 1) // one.resources.slack)
        some = members_of(one.members.raw)[-min(needed, VICTIMS_MAX - count) :]
        taken[crowd, one.run] = taken.get((crowd, one.run), 0) | Bits.of(*some).raw
        over -= one.resources.slack * len(some)
        count += len(some)
    if not taken:
        return None
    names = [name for (crowd, run), raw in taken.items() for name in names_of(crowd, raw, run=run)]
    text = f"{SLACK_TAKEN}: the host has {amount(host.capacity.slack):.10g} cpus of it"
    return Decision(
        facts=tuple(f.SlackTaken(crowd, Bits(raw), run) for (crowd, run), raw in taken.items()),
        sends=stop_order(host, names, at, notice=text),
        because=f"{counted(count, 'run on slack is', many='runs on slack are')} ended: {text}",
    )


def _turn(each: tuple[Key, RunSet]) -> tuple[int, bool, float]:
    """Return a key that sorts the lowest priority first; of equals services, which may have a
    budget, last; then the newest first."""
    _, one = each
    return one.priority, one.asks, -one.since
