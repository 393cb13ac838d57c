"""Faults of a whole store (slow, late, or off), beside those of a single statement.

Turns a fault's name into its effect on a world, like `shocks.py`. These faults are drawn separately
from all others, so that older seeds keep their storms.
"""

from __future__ import annotations

from functools import partial

from peloton.runtime.core.journal.statements import Bump, Statement, StatementFailed, StatementReply
from peloton.runtime.shells.journal import JournalShell, ReaderShell
from peloton.runtime.shells.shell import Shell
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.process import SimulatedProcess
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.shocks import weaken
from peloton.runtime.simulation.storms import Fault, LastingFault, MomentaryFault, Storm

COMMIT_S_MAX = 3.0


def slow_store(storm: Storm, action: StormAction) -> None:
    """Slow a daemon's reads or writes; its shards, links and session are unaffected."""
    daemon = storm.daemon(action.which)
    if daemon is None or daemon.process is None:
        return
    storm.strike(action.name, f"{daemon.name} for {action.for_s:.1f} s")
    daemon.process.wait(ReaderShell if action.other % 3 else JournalShell)
    storm.later(action.for_s, daemon.process.go_on)


def late_turnover(storm: Storm, strength: float) -> None:
    """Apply claims and releases late, and let half of the late claimants lose their session.

    Another daemon then claims, and the late write arrives in the middle of its claim.
    """
    weaken(storm, "store", hold_turnover=0.6 * strength)

    def replied(daemon: SimulatedDaemon, sent: list[tuple[Statement, StatementReply]]) -> None:
        late = any(
            isinstance(statement, Bump) and isinstance(reply, StatementFailed)
            for statement, reply in sent
        )
        if late and storm.raging and daemon.client is not None and storm.chance.random() < 0.5:
            daemon.client.expire()

    storm.world.on_replies.append(replied)


def power_off(storm: Storm, action: StormAction) -> None:
    """Cut the power of the whole site: all daemons die, the store keeps what it acknowledged.

    For a while before it the store is slow, so that many statements are not acknowledged yet.
    """
    store = storm.world.store
    slow = max(store.faults.hold, 0.3), max(store.faults.reorder_plain, 0.3)
    usual = store.faults.hold, store.faults.reorder_plain
    weaken(storm, "store", hold=slow[0], reorder_plain=slow[1])

    def then() -> None:
        storm.strike(action.name)
        weaken(storm, "store", hold=usual[0], reorder_plain=usual[1])
        store.power_cut()
        for daemon in [*storm.world.daemons.values()]:
            storm.world.kill(daemon)

    storm.later(min(action.for_s, 5.0), then)


def slow_commits(storm: Storm, strength: float) -> None:
    """Slow each commit of a daemon, so that turns of the next are taken meanwhile."""

    def delayed(process: SimulatedProcess, shell: Shell) -> bool:
        if not storm.raging or not isinstance(shell, JournalShell):
            return False
        for_s = storm.chance.random() * strength * COMMIT_S_MAX
        storm.later(for_s, partial(process.release, shell))
        return True

    def replied(daemon: SimulatedDaemon, _: object) -> None:
        process = daemon.process
        if storm.raging and process is not None and process.delays is None:
            process.delays = partial(delayed, process)

    storm.world.on_replies.append(replied)


SLOW_COMMITS = LastingFault(
    "F16", "slow commits", "each commit of a daemon takes a moment", slow_commits, lambda storm: 1
)
"""Drawn by itself, like those that were added before it."""
FAULTS: tuple[Fault, ...] = (
    LastingFault(
        "F12", "late turnover", "a claim or a release is applied late", late_turnover,
        lambda storm: storm.world.store.struck["hold_turnover"],
    ),
    MomentaryFault("F16", "slow store", "a daemon's reads or writes take long", slow_store),
    MomentaryFault(
        "F15", "power off", "all daemons die, the store keeps what it acknowledged", power_off, 2
    ),
)  # fmt: skip
