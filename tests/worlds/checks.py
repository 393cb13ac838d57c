"""What must be true in every world of single cores: after each step, and once all is quiet.

Turns a world into an AssertionError or nothing. It must not change the world, nor take an actor's
word for what can be computed from its children. What can be asked of any cluster is asked by
`peloton.chaos.cluster.checks`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from peloton.actors.host.ledger import HOLDING
from peloton.actors.host.state import HostStates
from peloton.actors.resources import Resources
from peloton.actors.respool.tree import Tree
from peloton.chaos.cluster import checks as shared
from peloton.chaos.cluster.checks import contents
from peloton.chaos.cluster.checks import ledgers_equal_the_machines as ledgers_equal_the_machines
from peloton.chaos.cluster.view import over as all_over
from peloton.runtime.core.shard import Shard
from peloton.runtime.simulation.checkers import rebuilt
from peloton.runtime.vocabulary import Absent, Key, members_of

if TYPE_CHECKING:
    from tests.worlds.harness import World

LINES_SHOWN = 60


def always(world: World) -> None:
    """What no step may break."""
    for shard in world.shards.values():
        indexes_equal_their_rebuild(shard)
        nothing_fails(shard)
    hosts_keep_their_room(world)
    no_instance_runs_twice(world)


def no_instance_runs_twice(world: World) -> None:
    """On hosts that are up: what runs on a lost one is killed when it comes back."""
    states = world.cells("host")
    seen: dict[str, str] = {}
    for run, process in world.machines.running.items():
        up = states[process.host].state == HostStates.UP
        if up and process.host not in world.machines.cut_off:
            instance = run.rpartition("-")[0]
            assert instance not in seen, f"{run} runs beside {seen[instance]}"
            seen[instance] = run


def outcomes_are_true(world: World, jobs: list[Key]) -> None:
    """An instance ended as its last run really did, and the job counts its instances."""
    for job in jobs:
        shown = world.job(job)
        if isinstance(shown, Absent):
            continue
        views = world.instances(job, shown.summary.instances)
        states = Counter(view.state for view in views)
        assert dict(shown.summary.counts) == dict(states), (job, shown.summary.counts, states)
        for view in views:
            run = f"{job.partition('/')[2]}-{view.instance}-{view.run}"
            result = world.machines.results.get(run)
            told = view.outcome.end.name if view.outcome is not None else view.state
            if view.state in ("SUCCEEDED", "FAILED"):
                assert result is not None and result.end.name == told, (run, view.state, result)


def indexes_equal_their_rebuild(shard: Shard) -> None:
    """An index is the sum of its children, never a story of its own."""
    for key, live, wanted in rebuilt(shard.population, shard.codec):
        assert contents(live) == contents(wanted), f"index of {key} drifted"


def nothing_fails(shard: Any) -> None:
    """No turn of a correct program raises, whatever the network does."""
    held = shard.deferred
    failed = [line.because for line in shard.turns.story._lines if "failed:" in line.because]
    unsaid = [line.because for line in shard.turns.story._lines if "not said" in line.because]
    assert not (failed or unsaid or held.dead_letters or held.retrying or held.quarantined), (
        shard.id, failed[:3], unsaid[:3], held.dead_letters,
    )  # fmt: skip


def hosts_keep_their_room(world: World) -> None:
    """The ledger adds up, fits the machine, and no run is ever accepted by two hosts."""
    shared.hosts_keep_their_room(world)
    for key, host in world.cells("host").items():
        for pod, run in host.runs.items():
            if run.phase in HOLDING:
                first = world._accepted.setdefault(pod, key)
                assert first == key, f"{pod} was accepted by {first} and {key}"
    assert all(world._accepted.get(run, at) == at for run, at in world.machines.started.items())


def quiet(world: World) -> None:
    """Nothing happens any more: all books agree with each other."""
    shared.quiet(world)
    wanted: dict[Key, Resources] = {}
    for lot in world.cells("lot").values():
        held = lot.shape.resources.times(len(lot.admitted))
        wanted[lot.shape.pool] = wanted.get(lot.shape.pool, Resources()) + held
    tree = next(i for s in world.shards.values() for i in s.population.indexes.values()
                if isinstance(i, Tree))  # fmt: skip
    for pool, total in wanted.items():
        below = tree.children.get(pool)
        assert below or tree.use(pool) == total, f"{pool} uses {tree.use(pool)}, lots {total}"


def over(world: World) -> bool:
    """Every order is answered, and all that there is of jobs is over."""
    return all(order.answer is not None for order in world.orders) and all_over(world)


def nothing_is_left(world: World, job: Key) -> None:
    """After a deletion: no trace of the job anywhere but in the journal."""
    name = job.partition("/")[2]
    for shard, core in world.shards.items():
        for key in [
            *core.population.cells,
            *core.population.crowds,
            *core.turns.resolver.owed_sends,
        ]:
            assert name not in key, f"{key} is left in {shard}"
        for key, row in world.disks[shard].ended.items():
            assert name not in key or row.deleted, f"row of {key}"
    for key, host in world.cells("host").items():
        assert not [pod for pod in host.runs if name in pod], key
    assert not [run for run in world.machines.running if name in run]


def written(world: World, fact: type) -> int:
    """How many facts of a class were journaled."""
    return sum(
        isinstance(each, fact)
        for disk in world.disks.values()
        for frame in disk.frames
        for entry in world.codec.decode_frame(frame.body)[1]
        for each in entry.facts
    )


def story(world: World) -> str:
    """What was done last, of everybody: for the message of a failing test."""
    lines = [line for core in world.shards.values() for line in core.turns.story._lines]
    lines.sort(key=lambda line: line.at)
    return "\n".join(
        f"{line.at:.3f} {line.key} {members_of(line.members)[:8]} {line.cause} "
        f"{[type(fact).__name__ for fact in line.facts]} {line.because}"
        for line in lines[-LINES_SHOWN:]
    )
