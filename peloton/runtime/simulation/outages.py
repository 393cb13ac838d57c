"""Faults of a store that is slow, late or dark, beside those that befall a single statement.

Turns a name into what is done to a world, like `shocks.py`. They are drawn apart from all others,
so that the seeds of before mean what they meant. It must not know a kind, nor strike anything of
its own accord.
"""

from __future__ import annotations

from peloton.runtime.core.statements import Bump, Failed, Reply, Statement
from peloton.runtime.shells.journal import JournalShell, ReaderShell
from peloton.runtime.simulation.daemon import Daemon
from peloton.runtime.simulation.plan import Deed
from peloton.runtime.simulation.shocks import weaken
from peloton.runtime.simulation.storms import Fault, Lasting, Storm, Stroke


def slow_store(storm: Storm, deed: Deed) -> None:
    """What a daemon writes or reads takes its time; its shards, links and session go on."""
    daemon = storm.daemon(deed.which)
    if daemon is None or daemon.process is None:
        return
    storm.strike(deed.name, f"{daemon.name} for {deed.for_s:.1f} s")
    daemon.process.wait(ReaderShell if deed.other % 3 else JournalShell)
    storm.later(deed.for_s, daemon.process.go_on)


def late_turnover(storm: Storm, strength: float) -> None:
    """Claims and releases are done later, and some who do not know lose their session over it:
    so another claims, and the late one lands in the midst of that."""
    weaken(storm, "store", hold_turnover=0.6 * strength)

    def replied(daemon: Daemon, said: list[tuple[Statement, Reply]]) -> None:
        late = any(isinstance(ask, Bump) and isinstance(reply, Failed) for ask, reply in said)
        if late and storm.raging and daemon.client is not None and storm.chance.random() < 0.5:
            daemon.client.expire()

    storm.world.on_replies.append(replied)


def power_off(storm: Storm, deed: Deed) -> None:
    """The power of the whole house: all daemons die at once, and the store has what it promised.

    For a while before it the store is slow, so that there is much that it has not promised yet.
    """
    store = storm.world.store
    slow = max(store.faults.hold, 0.3), max(store.faults.reorder_plain, 0.3)
    usual = store.faults.hold, store.faults.reorder_plain
    weaken(storm, "store", hold=slow[0], reorder_plain=slow[1])

    def then() -> None:
        storm.strike(deed.name)
        weaken(storm, "store", hold=usual[0], reorder_plain=usual[1])
        store.power_cut()
        for daemon in [*storm.world.daemons.values()]:
            storm.world.kill(daemon)

    storm.later(min(deed.for_s, 5.0), then)


FAULTS: tuple[Fault, ...] = (
    Lasting(
        "F12", "late turnover", "a claim or a release is done later", late_turnover,
        lambda storm: storm.world.store.struck["hold_turnover"],
    ),
    Stroke("F16", "slow store", "a daemon's reads or writes take their time", slow_store),
    Stroke("F15", "power off", "all daemons die, the store keeps what it promised", power_off, 2),
)  # fmt: skip
