"""The checks of a small cluster when a scripted history is over and nothing happens any more.

Turns a cluster into lines, each of them a goal that was not reached, a ledger that is not empty or
a trace of something deleted. The caller has waited long enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peloton.actors.host.stages import OCCUPYING
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobStates
from peloton.actors.resources import Resources
from peloton.actors.respool.tree import Tree
from peloton.actors.task.messages import End
from peloton.chaos.cluster.world import history
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.chaos.cluster.world.history import Operation
from peloton.runtime.ports import EndedRow
from peloton.runtime.vocabulary import Key

WantedJobs = Mapping[str, tuple[JobStates, int]]
"""The final state and instance count of jobs, by the last letter of their ids."""


def faults_of(cluster: SimulatedCluster, wanted: WantedJobs) -> Iterator[str]:
    """Yield everything that is not as the clients requested, or was left behind."""
    yield from history.faults(cluster.clients.history)
    yield from _goals(cluster, wanted)
    yield from _results(cluster)
    yield from _ledger(cluster)
    gone = [each.job for each in cluster.clients.history if _is_gone(cluster, each)]
    for job in dict.fromkeys(gone):
        yield from traces(cluster, job)


def _is_gone(cluster: SimulatedCluster, operation: Operation) -> bool:
    deleted = operation.what is history.Asked.DELETE
    return deleted and operation.job not in cluster.world.cells("job")


def _goals(cluster: SimulatedCluster, wanted: WantedJobs) -> Iterator[str]:
    deleted = [each for each in cluster.clients.history if each.what is history.Asked.DELETE]
    jobs = cluster.world.cells("job")
    for operation in deleted:
        if operation.job in jobs:
            yield f"{operation.job} is deleted, yet there"
    for letter, (state, instances) in wanted.items():
        job = next((job for key, job in jobs.items() if key.endswith(f"0{letter}")), None)
        if job is None or job.state not in TERMINAL_JOB_STATES:
            yield f"job {letter} has not ended: {job}"
        elif (job.state, job.spec.instances) != (state, instances):
            yield f"job {letter} ended as {job.state.name}"


def _results(cluster: SimulatedCluster) -> Iterator[str]:
    """Check R10: at most one run of an instance succeeds, whichever daemons died in between."""
    succeeded: dict[str, str] = {}
    for run, outcome in cluster.machines.results.items():
        instance = run.rpartition("-")[0]
        if outcome.end is not End.SUCCEEDED:
            continue
        if instance in succeeded:
            yield f"{run} succeeded beside {succeeded[instance]}"
        succeeded[instance] = run


def _ledger(cluster: SimulatedCluster) -> Iterator[str]:
    """Check that ledgers, pools and outboxes are empty, and nothing failed on the way."""
    world = cluster.world
    for key, host in world.cells("host").items():
        occupying = [run for run, entry in host.runs.items() if entry.phase in OCCUPYING]
        if occupying or host.used != Resources():
            yield f"{key} holds {occupying}, {host.used}"
    for key, lot in world.cells("lot").items():
        if lot.waiting or lot.admitted:
            yield f"{key} waits for {lot.waiting}, holds {lot.admitted}"
    for shard, core in world.shards().items():
        for index in core.population.indexes.values():
            pools = [*index.pools] if isinstance(index, Tree) else []
            for pool in pools:
                if index.use(pool) != Resources():
                    yield f"{pool} is charged {index.use(pool)}"
        if core.turns.resolver.owed_sends:
            yield f"{shard} owes {[*core.turns.resolver.owed_sends]}"
        if core.deferred.dead_letters or core.deferred.retrying or core.deferred.quarantined:
            yield f"{shard} has deferred mail or dead letters: {core.deferred.dump()}"
        for line in core.turns.story._lines:
            if "failed:" in line.because:
                yield f"{shard}: {line.key}: {line.because}"
    if cluster.machines.ended:
        yield f"machines keep ends that no host fetched: {[*cluster.machines.ended]}"


def traces(cluster: SimulatedCluster, job: Key) -> Iterator[str]:
    """Yield each trace of a deleted job outside of the journal, as a line."""
    world, name = cluster.world, job.partition("/")[2]
    for shard, core in world.shards().items():
        for key in [
            *core.population.cells,
            *core.population.crowds,
            *core.turns.resolver.owed_sends,
        ]:
            if name in key:
                yield f"{key} is left in {shard}"
    for host_key, host in world.cells("host").items():
        for run in host.runs:
            if name in run:
                yield f"{run} is left in {host_key}"
    for run in cluster.machines.running:
        if name in run:
            yield f"{run} still runs"
    for where, rows in world.store.cells.rows.items():
        if where.table == "ended" and name in str(where.key[1]):
            row = rows[max(rows)].row
            if isinstance(row, EndedRow) and not row.deleted:
                yield f"the store has the final state of {row.key}"
