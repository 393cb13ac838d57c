"""The faults of any simulated fleet, by name: of processes, clocks, membership, network and store.

Turns a fault's name into its effect on a world. The numbers are those of the fault model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from peloton.runtime.simulation.daemon import PortCall, SimulatedDaemon
from peloton.runtime.simulation.membership import SimulatedMembership
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Deadly, Fault, LastingFault, MomentaryFault, Storm

CLOCK_S_MAX = 10.0
"""How far a clock is off, or steps. Beyond the drift that leases allow no time bound is guaranteed,
and a calm that has to wait for a clock proves nothing."""
CHECKPOINT_CALLS = ("MoveFloor", "DeleteSegment", "DeleteBucket", "parts", "floor", "cut")
PORTS = ("store", "membership", "exchange")
TAKEOVER_CALLS = (
    "Bump", "ReadRegister", "ReadSegment", "ReadBucket", "create_owner",
    "claim", "read_checkpoint", "read_tail",
)  # fmt: skip

# ---- death ----


Fits = Callable[[PortCall], bool]

DEADLY: tuple[tuple[str, str, str, Fits, float], ...] = (
    ("F1", "death at a store call", "a process dies before or after a statement to the store",
     lambda call: call.port == "store", 0.004),
    ("F2", "death around a checkpoint", "it dies where a floor moves or old rows are deleted",
     lambda call: call.name in CHECKPOINT_CALLS, 0.2),
    ("F1", "death during a takeover", "it dies while it claims or recovers a shard",
     lambda call: call.name in TAKEOVER_CALLS, 0.02),
    ("F42", "death between shards", "it dies at a call that sends something to another daemon",
     lambda call: call.port == "exchange", 0.002),
    ("F1", "death at an effect", "it dies at a call that has an effect outside",
     lambda call: call.port not in PORTS, 0.02),
)  # fmt: skip


def _deaths(name: str, fits: Fits, *, share: float) -> Callable[[Storm, float], None]:
    def begin(storm: Storm, strength: float) -> None:
        storm.deadly.append(Deadly(name, fits, share * strength))

    return begin


def kill(storm: Storm, action: StormAction) -> None:
    """Kill a daemon as by `kill -9`, whatever the process does."""
    daemon = storm.daemon(action.which)
    if daemon is not None:
        storm.strike(action.name, daemon.name)
        storm.world.kill(daemon)


def kill_all(storm: Storm, action: StormAction) -> None:
    """Cut the power of all daemons: none is left to hand over to."""
    storm.strike(action.name)
    for daemon in [*storm.world.daemons.values()]:
        storm.world.kill(daemon)


def freeze(storm: Storm, action: StormAction) -> None:
    """Freeze a process, which continues later with its old state."""
    daemon = storm.daemon(action.which)
    if daemon is not None:
        storm.strike(action.name, f"{daemon.name} for {action.for_s:.1f} s")
        daemon.freeze()
        storm.later(action.for_s, daemon.thaw)


# ---- planned changes ----


def _hand_over(storm: Storm, daemon: SimulatedDaemon) -> None:
    """Let the daemon hand over and end; then its next process begins."""
    daemon.thaw()
    daemon.leave()
    mine = daemon.leaving

    def poll() -> None:
        if mine is None or daemon.leaving is not mine:
            return  # it died meanwhile
        if mine.done():
            daemon.die()
            storm.world.restart(daemon)
        else:
            storm.world.later.at(storm.world.now + 0.1, poll)

    poll()


def hand_over(storm: Storm, action: StormAction) -> None:
    """Restart one daemon with a hand-over."""
    daemon = storm.daemon(action.which)
    if daemon is not None:
        storm.strike(action.name, daemon.name)
        _hand_over(storm, daemon)


def rolling(storm: Storm, action: StormAction) -> None:
    """Restart all daemons with a hand-over, one after the other."""
    storm.strike(action.name)
    for at, daemon in enumerate([*storm.world.daemons.values()]):
        storm.later(at * action.for_s, partial(_hand_over, storm, daemon))


def add(storm: Storm, action: StormAction) -> None:
    """Add a daemon."""
    roles = next(iter(storm.world.daemons.values())).roles
    storm.added += 1
    storm.strike(action.name)
    storm.world.start(f"x{storm.added}", roles=roles)


def remove(storm: Storm, action: StormAction) -> None:
    """Remove a daemon for good."""
    daemon = storm.daemon(action.which)
    if daemon is not None and len(storm.world.daemons) > 1:
        storm.strike(action.name, daemon.name)
        storm.world.remove(daemon)
        _fill_roles(storm, daemon.roles)


def change_roles(storm: Storm, action: StormAction) -> None:
    """Restart a daemon with one role less, if another daemon still has that role."""
    daemon = storm.daemon(action.which)
    if daemon is None or len(daemon.roles) < 2:
        return
    all_roles = daemon.roles
    gone = all_roles[action.other % len(all_roles)]
    daemon.roles = tuple(role for role in all_roles if role != gone)
    storm.strike(action.name, f"{daemon.name} without {gone}")
    _fill_roles(storm, all_roles)
    storm.world.kill(daemon)


def _fill_roles(storm: Storm, roles: tuple[str, ...]) -> None:
    """Give roles that no daemon has any more to the first one, and restart it."""
    daemons = [*storm.world.daemons.values()]
    missing = [role for role in roles if all(role not in each.roles for each in daemons)]
    if missing:
        daemons[0].roles = (*daemons[0].roles, *missing)
        storm.world.kill(daemons[0])


# ---- membership ----


def _clients(storm: Storm) -> list[SimulatedMembership]:
    return [each.client for each in storm.world.daemons.values() if each.client is not None]


def expire(storm: Storm, action: StormAction) -> None:
    """Expire a session without a cause."""
    clients = _clients(storm)
    if clients:
        client = clients[action.which % len(clients)]
        storm.strike(action.name, client.name)
        client.expire()


def empty(storm: Storm, action: StormAction) -> None:
    """Expire all sessions at once."""
    storm.strike(action.name)
    for client in _clients(storm):
        client.expire()


def flap(storm: Storm, action: StormAction) -> None:
    """Expire sessions one after the other, faster than shards find stable owners."""
    for at in range(10 * action.count):
        again = replace(action, which=action.which + at)
        storm.later(at * 0.7, partial(expire, storm, again))


def cut_member(storm: Storm, action: StormAction) -> None:
    """Cut a daemon off from the membership service; it reaches all else."""
    clients = _clients(storm)
    if clients:
        client = clients[action.which % len(clients)]
        storm.strike(action.name, f"{client.name} for {action.for_s:.1f} s")
        client.cut()
        storm.later(action.for_s, client.heal)


def pause_members(storm: Storm, action: StormAction) -> None:
    """Let the service elect a leader, and answer no request meanwhile."""
    storm.strike(action.name, f"for {action.for_s:.1f} s")
    storm.world.ensemble.pause()
    storm.later(action.for_s, storm.world.ensemble.resume)


# ---- store ----


def cut_store(storm: Storm, action: StormAction) -> None:
    """Cut one daemon off from the store; it reaches all else."""
    daemon = storm.daemon(action.which)
    if daemon is not None:
        storm.strike(action.name, f"{daemon.name} for {action.for_s:.1f} s")
        storm.world.store.cut(daemon.name)
        storm.later(action.for_s, lambda: storm.world.store.mend(daemon.name))


def outage(storm: Storm, action: StormAction) -> None:
    """Cut all daemons off from the store."""
    storm.strike(action.name, f"for {action.for_s:.1f} s")
    for name in [*storm.world.daemons]:
        storm.world.store.cut(name)
        storm.later(action.for_s, partial(storm.world.store.mend, name))


# ---- network ----


def part(storm: Storm, action: StormAction) -> None:
    """Cut two daemons off from each other, or one from the other; others reach both."""
    pair = storm.pair(action)
    if pair is not None:
        one, other = pair[0].address, pair[1].address
        storm.strike(action.name, f"{one} {other} for {action.for_s:.1f} s")
        storm.world.network.part(one, other, one_way=action.name == "one way parted")
        storm.later(action.for_s, lambda: storm.world.network.mend(one, other))


def swizzle(storm: Storm, action: StormAction) -> None:
    """Partition all pairs one by one, and restore them in another order."""
    addresses = [each.address for each in storm.world.daemons.values()]
    pairs = [(a, b) for at, a in enumerate(addresses) for b in addresses[at + 1 :]]
    if not pairs:
        return
    storm.strike(action.name)
    for at, (one, other) in enumerate(pairs):
        storm.later(at * 0.5, partial(storm.world.network.part, one, other))
    for at, (one, other) in enumerate(storm.chance.sample(pairs, k=len(pairs))):
        back_s = len(pairs) * 0.5 + action.for_s + at * 0.5
        storm.later(back_s, partial(storm.world.network.mend, one, other))


# ---- clocks ----


def skew(storm: Storm, strength: float) -> None:
    """Set the clocks of all processes off from their beginning."""
    storm.world.skew_s = CLOCK_S_MAX * strength


def step_clock(storm: Storm, action: StormAction) -> None:
    """Set the clock of a running process."""
    daemon = storm.daemon(action.which)
    if daemon is not None and daemon.process is not None:
        by_s = min(action.for_s, CLOCK_S_MAX) * (1 if action.other % 2 else -1)
        storm.strike(action.name, f"{daemon.name} by {by_s:.1f} s")
        daemon.process.clock.set_by_s += by_s


# ---- lasting faults of the store, the network and the membership ----


def weaken(storm: Storm, port: str, **faults: float) -> None:
    """Turn on faults of the `store` or the `network`, beside those that are on already."""
    target = getattr(storm.world, port)
    target.faults = replace(target.faults, **faults)


def _unsettle(storm: Storm, **faults: float) -> None:
    """Turn on faults of the membership service, which draws them itself."""
    ensemble = storm.world.ensemble
    ensemble.storm(replace(ensemble.faults, **faults))


def _weakness(port: str, row: tuple[str, str, str, str, float]) -> LastingFault:
    """Return the fault of a row of `STORE` or `NETWORK`."""
    number, name, what, fault, share = row

    def begin(storm: Storm, strength: float) -> None:
        weaken(storm, port, **{fault: share * strength})

    def count(storm: Storm) -> int:
        struck: int = getattr(storm.world, port).struck[fault]
        return struck

    return LastingFault(number, name, what, begin, count)


# ---- the tables ----

STORE = (
    ("F11", "answer lost", "a statement is applied, its answer lost", "lose_reply", 0.05),
    ("F12", "late conditional write", "it times out and is applied later", "hold", 0.04),
    ("F12", "retry meets original", "either comes first", "either_order", 1.0),
    ("F11", "half accepted write", "a later access decides", "complete_by_read", 0.05),
    ("F11", "store refuses", "nothing was changed", "unavailable", 0.08),
    ("F13", "late plain write", "it arrives after later ones", "reorder_plain", 0.08),
    ("F13", "write after delete", "of its partition", "plain_after_delete", 0.2),
    ("F15", "power cut", "the store loses what was on its way", "power_cut", 0.005),
)
NETWORK = (
    ("F20", "parcels lost", "frames vanish", "drop", 0.15),
    ("F20", "parcels repeated", "frames come twice", "repeat", 0.2),
    ("F20", "parcels overtaken", "frames come out of order", "overtake", 0.2),
    ("F40", "streams cut", "a stream dies at a frame", "cut", 0.04),
    ("F40", "dials refused", "a dial comes to nothing", "refuse", 0.4),
    ("F40", "streams half open", "an end is not notified of the death", "silent", 0.6),
)
STROKES = (
    MomentaryFault("F1", "kill", "a process dies at any moment", kill),
    MomentaryFault("F39", "all restart", "all processes die at once", kill_all, times_max=1),
    MomentaryFault(
        "F3", "long pause", "a process is frozen past its session", freeze, 2, (10.0, 40.0)
    ),
    MomentaryFault(
        "F3", "short pause", "a process is frozen within its session", freeze, 4, (0.5, 6.0)
    ),
    MomentaryFault("F10", "hand-over", "a daemon is restarted with a hand-over", hand_over),
    MomentaryFault("F10", "rolling restart", "all daemons in turn", rolling, 1, (1.0, 6.0)),
    MomentaryFault("F10", "daemon added", "one more daemon", add),
    MomentaryFault("F10", "daemon removed", "a daemon leaves for good", remove, 2),
    MomentaryFault("F10", "other roles", "a daemon is restarted with a role less", change_roles, 2),
    MomentaryFault("F4", "session expired", "a session expires without a cause", expire),
    MomentaryFault("F47", "membership emptied", "all sessions end at once", empty, 2),
    MomentaryFault("F9", "flapping", "sessions expire again and again", flap, 1, (1.0, 1.0), 3),
    MomentaryFault("F5", "cut from membership", "a daemon does not reach the members", cut_member),
    MomentaryFault("F5", "membership pauses", "the service answers no request", pause_members, 2),
    MomentaryFault("F6", "cut from the store", "one daemon does not reach the store", cut_store),
    MomentaryFault("F14", "store outage", "no daemon reaches the store", outage, 2, (1.0, 25.0)),
    MomentaryFault("F8", "pair parted", "two daemons do not reach each other", part),
    MomentaryFault("F8", "one way parted", "one daemon does not reach another", part),
    MomentaryFault("F8", "swizzle", "pairs part one by one, and come back", swizzle, 1),
    MomentaryFault("F18", "clock set", "the clock of a running process steps", step_clock),
)
OTHERS = (
    LastingFault(
        "F18", "clocks differ", "each process has a clock of its own",
        skew, lambda storm: sum(each.lives - 1 for each in storm.world.daemons.values()),
    ),
    LastingFault(
        "F19", "store clocks differ", "times of plain writes are off",
        lambda storm, strength: weaken(storm, "store", skew_s=5.0 * strength), lambda storm: 1,
    ),
    LastingFault(
        "F20", "parcels slow", "every frame is delayed",
        lambda storm, strength: weaken(storm, "network", delay_s=2.0 * strength), lambda storm: 1,
    ),
    LastingFault(
        "F20", "views late", "members see old views, and skip some",
        lambda storm, strength: _unsettle(storm, watch_s_max=5.0 * strength),
        lambda storm: storm.world.ensemble.struck["changes seen as one"],
    ),
    LastingFault(
        "F11", "owner nodes inconclusive", "answers about owner nodes are lost",
        lambda storm, strength: _unsettle(
            storm, inconclusive=0.3 * strength, way_s_max=0.5 * strength
        ),
        lambda storm: (
            storm.world.ensemble.struck["request lost"] + storm.world.ensemble.struck["answer lost"]
        ),
    ),
)  # fmt: skip


def rows() -> dict[str, Fault]:
    """Return all faults, by name."""
    found: list[Fault] = [
        LastingFault(number, name, what, _deaths(name, fits, share=share), lambda storm: 0)
        for number, name, what, fits, share in DEADLY  # counted as they strike
    ]
    found += [_weakness("store", row) for row in STORE]
    found += [_weakness("network", row) for row in NETWORK]
    found += [*STROKES, *OTHERS]
    return {fault.name: fault for fault in found}
