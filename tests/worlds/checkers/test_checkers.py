"""Each domain-blind checker, and each question of a quiet cluster, finds its planted contradiction.

A checker that finds nothing is worth as much as one that is not there. So here a rule is broken by
hand, in the store, in a daemon, or in one entry of a kind's table, and the checker has to name it.
The worlds must otherwise be well: a clean one passes, and every check was made in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from peloton.actors.host import facts as hf
from peloton.actors.host.folds import EVOLVE as HOST_EVOLVE
from peloton.actors.host.messages import RunsStarted
from peloton.actors.job.messages import JobCreated, StopJob
from peloton.actors.resources import Resources
from peloton.actors.respool.lot import facts as lf
from peloton.actors.respool.messages import ROOT, PoolConfig
from peloton.actors.task import facts as tf
from peloton.actors.task.messages import Ended
from peloton.actors.task.state import Admission
from peloton.chaos.cluster.checks import ClusterChecks
from peloton.chaos.cluster.world.cluster import NEED, ClusterSetup, SimulatedCluster
from peloton.chaos.cluster.world.machines import FAILURE, SUCCESS, Fate
from peloton.runtime.core.deferring.mailbox import Mailbox
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.shell_messages import ShellFailed, resolve, send
from peloton.runtime.simulation.checkers import Bounds
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Decision

replace = msgspec.structs.replace
SHORT = ClusterSetup(DaemonLimits(checkpoint_bytes_min=2_000), lambda run: Fate(0.5))
FAILING = ClusterSetup(fates=lambda run: Fate(0.5, FAILURE))


def begun(setup: ClusterSetup = SHORT, **kwargs: Any) -> tuple[SimulatedCluster, ClusterChecks]:
    """A small cluster, and its checks before its first step."""
    cluster = SimulatedCluster(seed=3, daemons=2, hosts=2, setup=setup, **kwargs)
    return cluster, ClusterChecks(cluster)


def live(cluster: SimulatedCluster, checks: ClusterChecks) -> None:
    """A life: two jobs, of which one does not fit at once, and a takeover; then all is quiet."""
    world = cluster.world
    world.run_until(cluster.ready, within_s=60)
    cluster.create(12)
    cluster.create(3, max_failures=1)
    world.run_for(5)
    world.kill(world.daemons["d1"])
    world.run_until(cluster.over, within_s=200)
    world.run_for(40)
    checks.quiet()


def lived() -> tuple[SimulatedCluster, ClusterChecks]:
    """A quiet cluster that has lived."""
    cluster, checks = begun()
    live(cluster, checks)
    return cluster, checks


def found(do: Callable[[], object]) -> str:
    """What is wrong, by the rule's name."""
    with pytest.raises(Contradiction) as caught:
        do()
    return str(caught.value)


def test_a_clean_world_passes_and_every_check_was_made() -> None:
    _, checks = lived()
    for name in ("frame", "recovery", "closer", "replay", "row"):
        assert checks.core.checked[name] > 3, name
    floors = checks._cluster.world.store.registers.registers.values()
    assert any(row.floor for row in floors), "no checkpoint was ever replayed"
    assert len(checks.ledger.accepted) == 15 and len(checks.ledger.requests_ever) == 2


# ---- in one entry of a kind's table ----


def in_table(kind: str, field: str, *, cls: type, do: Any) -> Callable[[SimulatedCluster], None]:
    """Another function in one of a kind's tables."""

    def plant(cluster: SimulatedCluster) -> None:
        kinds: Any = cluster.world.kinds
        table = {**getattr(kinds[kind], field), cls: do}
        kinds[kind] = replace(kinds[kind], **{field: table})

    return plant


def _counted(host: Any, fact: Any, *, numbers: Any = itertools.count()) -> Any:  # noqa: B008
    return replace(host, because=str(next(numbers)))


def _raises(*_: Any) -> Any:
    raise RuntimeError("planted")


def _believed(task: Any, message: Any, at: Any) -> Decision:
    return Decision(facts=(tf.RunEnded(SUCCESS),)) if task.run == message.run else Decision()


def _ended_twice(task: Any, message: Any, at: Any) -> Decision:
    ended = tf.RunEnded(message.outcome)
    return Decision(facts=(ended, ended)) if task.run == message.run else Decision()


def _room_for_free(host: Any, fact: Any) -> Any:
    return replace(HOST_EVOLVE[hf.RunsAccepted](host, fact), used=host.used)


def _queued_is_admitted(cluster: SimulatedCluster) -> None:
    """In a pool that is smaller than its hosts: they would take what the pool does not admit."""
    small = PoolConfig("p", ROOT, Resources(), NEED.times(2))
    cluster.pool_config = lambda limit: small  # type: ignore[method-assign]
    admitted = in_table(
        "task",
        "evolve",
        cls=tf.AdmissionQueued,
        do=lambda t, f: replace(t, admission=Admission.ADMITTED),
    )
    admitted(cluster)


PLANTS: dict[str, tuple[str, ClusterSetup, Callable[[SimulatedCluster], None]]] = {
    "a fold that counts its calls": (
        "R5", SHORT, in_table("host", "evolve", cls=hf.HostReachable, do=_counted)),
    "a turn that raises": (
        "R18", SHORT, in_table("host", "decide", cls=RunsStarted, do=_raises)),
    "a failure believed to be a success": (
        "R8b", FAILING, in_table("task", "decide", cls=Ended, do=_believed)),
    "an end that is written twice": (
        "R13", SHORT, in_table("task", "decide", cls=Ended, do=_ended_twice)),
    "a launch that is not remembered": (
        "R8a", SHORT, in_table("task", "evolve", cls=tf.TaskLaunching, do=lambda t, f: t)),
    "room that costs nothing": (
        "R9", SHORT, in_table("host", "evolve", cls=hf.RunsAccepted, do=_room_for_free)),
    "who is queued takes himself for admitted": (
        "R10", SHORT, _queued_is_admitted),
    "who is admitted is charged to nobody": (
        "R10", SHORT, in_table("lot", "evolve", cls=lf.LotAdmitted,
                               do=lambda lot, f: replace(lot, waiting=lot.waiting - f.members))),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_a_wrong_kind_is_found(plant: str) -> None:
    rule, setup, change = PLANTS[plant]
    cluster, checks = begun(setup)
    change(cluster)
    assert found(lambda: live(cluster, checks)).startswith(rule)


# ---- in the store ----


def in_register(**change: Any) -> Callable[[SimulatedCluster], None]:
    """Other columns in the register of the first shard."""

    def plant(cluster: SimulatedCluster) -> None:
        registers = cluster.world.store.registers.registers
        shard, row = next((s, r) for s, r in registers.items() if r.last_position > 2)
        said = {name: do(getattr(row, name)) for name, do in change.items()}
        registers[shard] = replace(row, **said)
        cluster.world.store.uses += 1  # registers change in a use of the store only

    return plant


def in_rows(change: Callable[[Any], Any]) -> Callable[[SimulatedCluster], None]:
    """The last committed frame of each shard is changed, or is gone where `change` says None."""

    def plant(cluster: SimulatedCluster) -> None:
        store = cluster.world.store
        for where, cells in store.cells.rows.items():
            if where.table == "journal":
                last = max(cells)
                cell = cells.pop(last)
                row = change(cell.row)
                if row is not None:
                    cells[last] = cell._replace(row=row)

    return plant


def _step(cluster: SimulatedCluster, checks: ClusterChecks) -> None:
    cluster.world.step()


def _quiet(cluster: SimulatedCluster, checks: ClusterChecks) -> None:
    checks.quiet()


STORES: dict[str, tuple[str, Callable[[SimulatedCluster], None], Any]] = {
    "an epoch falls": ("R3", in_register(epoch=lambda was: was - 1), _step),
    "an epoch has two owners": ("R3", in_register(op=lambda was: bytes(24)), _step),
    "a position falls": ("R4", in_register(last_position=lambda was: was - 1), _step),
    "a position without a frame": ("R4", in_register(last_position=lambda was: was + 1), _step),
    "a floor beyond the end": ("R4", in_register(floor=lambda was: was + 999), _step),
    "another chain": ("R4", in_register(last_chain=lambda was: bytes(32)), _step),
    "other bytes in a frame": ("R4", in_rows(lambda row: replace(row, body=b"?")), _quiet),
    "a frame is gone": ("R4", in_rows(lambda row: None), _quiet),
}


@pytest.mark.parametrize("plant", STORES)
def test_a_store_that_changes_the_past_is_found(plant: str) -> None:
    rule, change, look = STORES[plant]
    cluster, checks = lived()
    change(cluster)
    assert found(lambda: look(cluster, checks)).startswith(rule)


def test_a_frame_of_an_older_epoch_behind_a_younger_one_is_found() -> None:
    cluster, checks = lived()
    for shard, frames in checks.core.scan.frames.items():
        if shard.group == "jobmgr":
            frames[-1] = frames[-1]._replace(epoch=99)
    made = cluster.create(1)
    look = cluster.world.run_until
    assert found(lambda: look(lambda: made.known, within_s=60)).startswith("R3")


# ---- in a daemon ----


def _cell(cluster: SimulatedCluster) -> None:
    for core in cluster.world.shards().values():
        for key, state in core.population.cells.items():
            if key.startswith("host/"):
                core.population.cells[key] = replace(state, because="planted")
                return


def _index(cluster: SimulatedCluster) -> None:
    for core in cluster.world.shards().values():
        for index in core.population.indexes.values():
            if hasattr(index, "capacity"):
                index.capacity = index.capacity + index.capacity


def _broken(cluster: SimulatedCluster) -> None:
    daemon = cluster.world.daemons["d2"]
    assert daemon.process is not None
    send(daemon.process.shells[0].ref, ShellFailed("a shell", "planted", fatal=False))
    cluster.world.run_for(1)


def _exit(cluster: SimulatedCluster) -> None:
    root = cluster.world.daemons["d2"].root
    assert root is not None
    resolve(root.exited, "planted")
    cluster.world.run_for(10)  # it is noticed with the next step of that process


def _damaged(cluster: SimulatedCluster) -> None:
    process = cluster.world.daemons["d2"].process
    assert process is not None
    claim: Any = next(shell for shell in process.shells if shell.name == "claim")
    claim.handoff.damaged[next(iter(cluster.world.shards()))] = "planted"


def _twice(cluster: SimulatedCluster) -> None:
    first, second = cluster.world.daemons.values()
    both = {**second.shards(), **first.shards()}
    second.shards = lambda: both  # type: ignore[method-assign]


def _loading(cluster: SimulatedCluster) -> None:
    for core in cluster.world.shards().values():
        core.deferred.loading[cluster.nobody] = Mailbox()


def _quarantined(cluster: SimulatedCluster) -> None:
    for core in cluster.world.shards().values():
        core.deferred.quarantined[cluster.nobody] = 1


DAEMONS: dict[str, tuple[str, Callable[[SimulatedCluster], None]]] = {
    "a state that no fact made": ("R5", _cell),
    "an index that drifted": ("R5", _index),
    "a shell breaks": ("R18", _broken),
    "a process gives up": ("R18", _exit),
    "a shard is damaged": ("R4", _damaged),
    "two daemons have one shard": ("R3", _twice),
    "mail waits for a row that never comes": ("R11", _loading),
    "an actor is in quarantine": ("R18", _quarantined),
}


@pytest.mark.parametrize("plant", DAEMONS)
def test_a_wrong_daemon_is_found(plant: str) -> None:
    rule, change = DAEMONS[plant]
    cluster, checks = lived()

    def look() -> None:
        change(cluster)
        checks.quiet()

    assert found(look).startswith(rule)


@pytest.mark.parametrize("bound", Bounds._fields)
def test_what_grows_is_found(bound: str) -> None:
    cluster, checks = begun()
    checks.core._bounds = Bounds()._replace(**{bound: 0})

    def look() -> None:
        live(cluster, checks)
        for shard, core in cluster.world.shards().items():
            core._inbox.append(None)  # type: ignore[arg-type]
            checks.core.queues_are_bounded(shard, core)

    assert found(look).startswith("R17")


def test_an_answer_before_its_frame_is_found() -> None:
    """Not at the end, when the frame may have come to be, but at once."""
    cluster, _ = lived()
    made = cluster.create(1)
    cluster.world.step()
    made.end(JobCreated(made.job), cluster.world.now)
    assert found(cluster.world.step).startswith("R1 acknowledged")


def test_poison_excuses_a_failed_turn_and_nothing_else() -> None:
    cluster, checks = begun()
    checks.core.poisoned = True
    world = cluster.world
    world.run_until(cluster.ready, within_s=60)
    made = cluster.create(1)
    world.run_until(lambda: made.known, within_s=60)
    nonsense: Any = ((0,),)
    for _ in range(2):
        for daemon in world.living():
            daemon.region.ask(made.job, StopJob(nonsense))
        world.run_for(5)
    world.run_for(60)
    checks.core.quiet()
    checks.core.poisoned = False
    assert found(checks.core.quiet).startswith("R18")
