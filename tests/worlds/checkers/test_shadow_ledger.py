"""The books and the questions of a quiet cluster: each names the rule that is broken.

Facts are told to the books by hand, in the order of a journal that no right program writes; and a
quiet cluster is shown with one thing in it that should not be.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import immutables
import msgspec
import pytest

from peloton.actors.host import facts as hf
from peloton.actors.host.ledger import Ledger, RunSet
from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.host.messages import RunEnd
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import RunPhase
from peloton.actors.job import facts as jf
from peloton.actors.job.messages import JobCreated, StopJob
from peloton.actors.job.slice import facts as sf
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool import facts as pf
from peloton.actors.respool.lot import facts as lf
from peloton.actors.respool.lot.messages import LotShape, lot_key
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT, PoolConfig
from peloton.actors.task import facts as tf
from peloton.actors.task.messages import Policy, TaskGoals, crowd_key, slice_of_crowd
from peloton.actors.task.state import Admission, TaskStates
from peloton.assembly.kinds import kinds
from peloton.chaos.cluster import checks
from peloton.chaos.cluster.checks import ClusterChecks
from peloton.chaos.cluster.rules import journaled
from peloton.chaos.cluster.rules.shadow_ledger import APPLIED, NOT_APPLIED, ShadowLedger
from peloton.chaos.cluster.world.cluster import (
    HOST_CAPACITY,
    NEED,
    STORM_POOL,
    ClusterSetup,
    SimulatedCluster,
)
from peloton.chaos.cluster.world.history import Asked, Operation
from peloton.chaos.cluster.world.machines import (
    FAILURE,
    MACHINE_BACKEND,
    SUCCESS,
    Fate,
    MachineProcess,
    Machines,
)
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.entities.records import RequestAnswered
from peloton.runtime.core.turning.replies import SCOPE
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Bits, Key, Refused, key

replace = msgspec.structs.replace
JOB = "j".rjust(36, "0")
CROWD, LOT, JOB_KEY = crowd_key(JOB, 0), lot_key(JOB, 0, shape_number=0), key("job", JOB)
HOST, OTHER = key("host", "h0"), key("host", "h1")
SHAPE = LotShape(STORM_POOL, NEED)
ONE, TWO = Bits.of(0), Bits.of(0, 1)
SPEC = RunSpec(NEED, "x")


def entry(to: Key, *facts: Any, members: Bits = Bits()) -> Entry:  # noqa: B008
    """One entry of a journal."""
    return Entry(to, facts, members.raw)


def tasks(*facts: Any, members: Bits = ONE) -> Entry:
    """What instances wrote."""
    return entry(CROWD, *facts, members=members)


def accepted(run: int = 1, members: Bits = ONE) -> hf.RunsAccepted:
    """Room on a host."""
    return hf.RunsAccepted(CROWD, members, run, SPEC, 0.0)


SLICE, VOLUME = slice_of_crowd(CROWD), VolumeConfig("data", 0)
CREATED = tf.TaskCreated(TaskGoals.SUCCEEDED, Policy(), 0, LOT)
LAUNCHING, ENDED = tf.TaskLaunching(), tf.RunEnded(SUCCESS)
HOLDING = tf.TaskLaunching(prepare=True)
CONFIGURED = hf.HostConfigured(NEED, (), MACHINE_BACKEND, (1, 2), 60.0)
MADE = jf.JobMade(JOB_KEY, JobSpec("j", "me", STORM_POOL, 1, TaskConfig()), "/p", 0.0)
ASKED = RequestAnswered("c1-1", b"", b"", 0.0)
STOPPED = jf.StopOrdered(1.0)
POOLS = [
    entry(ROOT, pf.CapacityChanged(key("inventory", 0), 1, HOST_CAPACITY)),
    entry(ROOT, pf.PoolConfigured(PoolConfig("root", ROOT, Resources(), Resources()))),
    entry(STORM_POOL, pf.PoolConfigured(PoolConfig("p", ROOT, Resources(), NEED))),
]
ADMITTED = [
    entry(LOT, lf.LotOpened(SHAPE, CROWD, 0.0), lf.LotEnqueued(ONE, 1, 0.0)),
    entry(LOT, lf.LotAdmitted(ONE)),
]
RUNNING = [*POOLS, tasks(CREATED), *ADMITTED, tasks(LAUNCHING)]
HELD = [entry(HOST, CONFIGURED), entry(OTHER, CONFIGURED), entry(HOST, accepted())]

ON_GPUS = RunSpec(Resources(gpu=UNIT), "x")
GPUS = [
    entry(HOST, hf.HostConfigured(Resources(gpu=2 * UNIT), (), MACHINE_BACKEND, (1, 2), 60.0)),
    *(entry(HOST, hf.RunsAccepted(CROWD, ONE, run, ON_GPUS, 0.0)) for run in (1, 2)),
]


AT_HOME = [
    entry(SLICE, sf.VolumeHomesGiven(ONE, (HOST,))),
    entry(HOST, CONFIGURED),
    entry(OTHER, CONFIGURED),
    entry(HOST, hf.VolumesGiven(CROWD, ONE, VOLUME, 0.0)),
]


def given(devices: tuple[int, ...], *, run: int) -> Entry:
    """Gpus for a run."""
    return entry(HOST, hf.DevicesGiven(CROWD, ONE, run, (devices,)))


JOURNALS: dict[str, tuple[str, list[Entry]]] = {
    "exists twice": ("R8a", [tasks(CREATED), tasks(CREATED)]),
    "launched twice": ("R8a", [*RUNNING, tasks(LAUNCHING)]),
    "held twice": ("R8a", [*RUNNING[:-1], tasks(HOLDING), tasks(HOLDING)]),
    "held while it runs": ("R8a", [*RUNNING, tasks(HOLDING)]),
    "launched twice after it was held": ("R8a", [*RUNNING[:-1], tasks(HOLDING), tasks(LAUNCHING),
        tasks(LAUNCHING)]),
    "tried again while it runs": ("R8a", [*RUNNING, tasks(tf.TaskRetried())]),
    "withdrawn while it runs": ("R8a", [*RUNNING, tasks(tf.TaskWithdrawn())]),
    "forgotten while it runs": ("R8a", [*RUNNING, tasks(tf.TaskForgotten())]),
    "launched and not there": ("R8a", [*POOLS, tasks(CREATED), *ADMITTED, tasks(
        LAUNCHING, members=Bits.of(1))]),
    "an end that was another": ("R8b", [*RUNNING, tasks(tf.RunEnded(FAILURE))]),
    "ends twice": ("R13", [*RUNNING, tasks(ENDED), tasks(ENDED)]),
    "starts after its end": ("R13", [*RUNNING, tasks(ENDED), tasks(tf.TaskStarted())]),
    "accepted after its end": ("R13", [*RUNNING, tasks(ENDED), tasks(tf.LaunchAccepted())]),
    "refused after its end": ("R13", [*RUNNING, tasks(ENDED), tasks(tf.LaunchRefused(""))]),
    "killed after its end": ("R13", [*RUNNING, tasks(ENDED), tasks(tf.TaskKilling(""))]),
    "launched without a charge": ("R10", [tasks(CREATED), tasks(LAUNCHING)]),
    "lets go of who runs": ("R10", [*RUNNING, entry(LOT, lf.LotReleased(ONE, 1))]),
    "asks anew while it runs": ("R10", [*RUNNING, entry(LOT, lf.LotEnqueued(ONE, 2, 0.0))]),
    "charged twice": ("R10", [*POOLS, *ADMITTED, entry(LOT, lf.LotAdmitted(ONE))]),
    "a pool over its limit": ("R10", [*POOLS, ADMITTED[0], entry(LOT, lf.LotAdmitted(TWO))]),
    "forgotten with a charge": ("R11", [
        *RUNNING, tasks(ENDED), tasks(tf.TaskForgotten())]),
    "accepted by two hosts": ("R9", [*HELD, entry(OTHER, accepted())]),
    "accepted again by one": ("R9", [*HELD, entry(HOST, accepted())]),
    "over its room": ("R9", [*HELD, entry(HOST, accepted(run=2))]),
    "a gpu given twice": ("R9", [*GPUS, given((0,), run=1), given((0,), run=2)]),
    "a gpu it does not have": ("R9", [*GPUS, given((1,), run=1), given((2,), run=2)]),
    "fewer gpus than it asks for": ("R9", [*GPUS, given((1,), run=1), given((), run=2)]),
    "ends where it is not": ("R13", [*HELD, entry(OTHER, hf.ProcessesEnded((
        RunEnd(f"{JOB}-0-1", SUCCESS),)))]),
    "a set ends twice": ("R13", [*HELD, *(entry(HOST, hf.SetEnded(CROWD, ONE, 1, SUCCESS)),) * 2]),
    "forgotten while held": ("R11", [*HELD, entry(HOST, hf.RunsForgotten((f"{JOB}-0-1",)))]),
    "a set forgotten while held": ("R11", [*HELD, entry(HOST, hf.SetForgotten(CROWD, ONE, 1))]),
    "a volume on two hosts": (
        "R36", [*AT_HOME[1:], entry(OTHER, hf.VolumesGiven(CROWD, ONE, VOLUME, 0.0))],
    ),
    "another home": ("R36", [*AT_HOME, entry(SLICE, sf.VolumeHomesGiven(ONE, (OTHER,)))]),
    "a volume deleted that nobody has left": (
        "R36", [*AT_HOME, entry(HOST, hf.VolumeDeleting(f"{JOB}-0"))],
    ),
    "a volume left by one that is to run": (
        "R36", [tasks(CREATED), *AT_HOME, entry(SLICE, sf.VolumeHomesLeft(ONE))],
    ),
    "made twice": ("R1", [entry(JOB_KEY, MADE), entry(JOB_KEY, MADE)]),
    "a request with two effects": (
        "R1", [entry(JOB_KEY, STOPPED, ASKED), entry(JOB_KEY, STOPPED, ASKED)],
    ),
    "a refused request with an effect": (
        "R2", [entry(JOB_KEY, ASKED), entry(JOB_KEY, STOPPED, ASKED)],
    ),
}  # fmt: skip


def told(entries: list[Entry]) -> ShadowLedger:
    """Books that have heard this."""
    machines = Machines(lambda run: Fate())
    machines.results[f"{JOB}-0-1"] = SUCCESS
    ledger, position = ShadowLedger(machines), itertools.count(1)
    for each in entries:
        ledger.apply(DecodedFrame(ShardId("a", 0), next(position), 0.0, [each]))
        ledger.settle()
    return ledger


@pytest.mark.parametrize("name", JOURNALS)
def test_a_journal_that_contradicts_itself_is_found(name: str) -> None:
    rule, entries = JOURNALS[name]
    told(entries[:-1])
    with pytest.raises(Contradiction, match=f"^{rule} "):
        told(entries)


def test_a_whole_life_and_a_second_one_under_the_same_id_is_fine() -> None:
    left = entry(LOT, lf.LotReleased(ONE, 1))
    ended = entry(HOST, hf.ProcessesEnded((RunEnd(f"{JOB}-0-1", SUCCESS),)))
    gone = entry(JOB_KEY, jf.JobForgotten())
    life = [
        entry(JOB_KEY, MADE, ASKED), *RUNNING[3:], *HELD[2:], ended, tasks(ENDED), left,
        tasks(tf.TaskForgotten()), gone,
    ]  # fmt: skip
    ledger = told([*POOLS, *HELD[:2], *life, *life])
    assert ledger.made[JOB_KEY] == 2 and not ledger.accepted
    assert ledger.times_accepted == {f"{JOB}-0-1": 2}


def test_a_job_made_again_after_its_deletion_is_not_deleted() -> None:
    """Its first pieces were dropped, or a late repeat created it again."""
    gone = entry(JOB_KEY, jf.JobForgotten())
    assert [*told([gone]).deleted] == [JOB_KEY]
    ledger = told([gone, entry(JOB_KEY, MADE)])
    assert not ledger.deleted and [*ledger.deleted_ever] == [JOB_KEY]
    with pytest.raises(Contradiction, match="^R1 "):
        told([entry(JOB_KEY, MADE), gone, *(entry(JOB_KEY, MADE),) * 2])


def test_refused_runs_count_on_unless_nobody_wants_another() -> None:
    refused = tasks(tf.LaunchRefused("full"))
    assert told([*RUNNING, refused]).tasks[CROWD].runs == {0: 2}
    stopped = tasks(tf.TaskGoalSet(TaskGoals.KILLED))
    assert told([*RUNNING, stopped, refused]).tasks[CROWD].runs == {0: 1}


def test_the_runs_of_one_that_was_removed_and_is_added_again_count_on() -> None:
    again = replace(CREATED, past=3)
    assert told([tasks(again)]).tasks[CROWD].runs == {0: 4}


def test_what_is_started_and_was_not_accepted_is_found() -> None:
    ledger = told(HELD)
    ledger._machines.started[f"{JOB}-0-1"] = HOST
    ledger.step()
    ledger._machines.started[f"{JOB}-1-1"] = HOST
    with pytest.raises(Contradiction, match="^R9"):
        ledger.step()


def test_a_volume_may_be_left_where_none_was_made_or_by_one_that_is_stopped() -> None:
    left = entry(SLICE, sf.VolumeHomesLeft(ONE))
    elsewhere = entry(SLICE, sf.VolumeHomesGiven(ONE, (OTHER,)))
    told([tasks(CREATED), *AT_HOME[:-1], left, elsewhere])
    stopped = tasks(tf.TaskGoalSet(TaskGoals.KILLED))
    deleted = entry(HOST, hf.VolumeDeleting(f"{JOB}-0"))
    told([tasks(CREATED), *AT_HOME, stopped, left, deleted, elsewhere])
    told([*AT_HOME, entry(JOB_KEY, jf.JobForgotten()), deleted])


def test_a_run_elsewhere_than_its_volume_is_found() -> None:
    ledger = told([*AT_HOME, entry(OTHER, accepted())])
    ledger._machines.started[f"{JOB}-0-1"] = OTHER
    ledger.step()  # its config has no volume any more
    ledger._started = 0
    ledger._machines.volumes[OTHER, f"{JOB}-0"] = [f"{JOB}-0-1"]
    with pytest.raises(Contradiction, match="^R36"):
        ledger.step()


def test_the_books_have_thought_of_every_fact() -> None:
    found = kinds({"hostmgr": 1, "jobmgr": 1})
    for name in ("task", "host", "lot", "respool", "job"):
        for fact in found[name].facts.values():
            assert (fact in APPLIED) != (fact in NOT_APPLIED), fact


# ---- a quiet cluster ----


class Shown:
    """A view of a cluster, with one thing changed."""

    def __init__(self, view: checks.ClusterView) -> None:
        names = ("job", "slice", "lot", "respool", "host")
        self.kinds = {name: dict(view.cells(name)) for name in names}
        self.all_crowds = {name: crowd.copy() for name, crowd in view.crowds().items()}
        self.machines = Machines(view.machines.fates)
        self.machines.running = dict(view.machines.running)

    def cells(self, kind: str) -> dict[Key, Any]:
        return self.kinds[kind]

    def crowds(self) -> dict[Key, Any]:
        return self.all_crowds


@cache
def served() -> tuple[SimulatedCluster, ClusterChecks]:
    """One service that runs, one instance of a job that ended, and one that waits for room."""
    setup = ClusterSetup(fates=lambda run: Fate(None))
    cluster = SimulatedCluster(seed=1, daemons=1, hosts=2, setup=setup)
    judged = ClusterChecks(cluster)
    cluster.world.run_until(cluster.ready, within_s=60)
    cluster.create(3)
    cluster.create(6)
    cluster.world.run_for(30)
    return cluster, judged


def shown() -> Shown:
    """It, to be changed."""
    return Shown(served()[0])


def test_a_cluster_at_work_is_quiet_too() -> None:
    served()[1].quiet()
    view = shown()
    assert len(view.machines.running) == 8
    assert [len(lot.waiting) for lot in view.cells("lot").values() if lot.waiting] == [1]


def _a_lot(view: Shown) -> tuple[Key, Lot]:
    return next((k, lot) for k, lot in view.cells("lot").items() if lot.admitted)


def _leaked_room(view: Shown) -> None:
    name, lot = _a_lot(view)
    view.cells("lot")[name] = replace(lot, admitted=lot.admitted | Bits.of(99))


def _twice_in_lots(view: Shown) -> None:
    name, lot = _a_lot(view)
    view.cells("lot")[Key(f"{name}1")] = lot


def _waits_in_vain(view: Shown) -> None:
    name = next(name for name, lot in view.cells("lot").items() if lot.waiting)
    del view.cells("lot")[name]


def _tally(view: Shown) -> None:
    for name, job in view.cells("job").items():
        report = job.reports[0]
        tally = replace(report.tally, counts=(("RUNNING", 77),))
        reports = job.reports.set(0, replace(report, tally=tally))
        view.cells("job")[name] = replace(job, reports=reports)


def _over_room(view: Shown) -> None:
    for name, host in view.cells("host").items():
        view.cells("host")[name] = replace(host, capacity=NEED)


def _wrong_sum(view: Shown) -> None:
    for name, host in view.cells("host").items():
        view.cells("host")[name] = replace(host, used=NEED)


def _unknown_process(view: Shown) -> None:
    view.machines.running[f"{JOB}-0-1"] = MachineProcess(HOST, NEED)


def _missing_process(view: Shown) -> None:
    del view.machines.running[next(iter(view.machines.running))]


def _kept_run(view: Shown) -> None:
    ended = RunSet(ONE, 1, RunPhase.ENDED, Resources())
    host = view.cells("host")[HOST]
    view.machines.running = {
        run: process for run, process in view.machines.running.items() if process.host != HOST
    }
    view.cells("host")[HOST] = replace(host, runs=Ledger().put(CROWD, ended), used=Resources())


def _fits(view: Shown) -> None:
    pool = view.cells("respool")[STORM_POOL]
    roomy = replace(pool.config, limit=HOST_CAPACITY.times(9))
    view.cells("respool")[STORM_POOL] = replace(pool, config=roomy)
    root = view.cells("respool")[ROOT]
    more = [(name, replace(each, capacity=HOST_CAPACITY.times(9))) for name, each in sorted(
        root.inventories.items())]  # fmt: skip
    view.cells("respool")[ROOT] = replace(root, inventories=immutables.Map(more))


def _idle_host(view: Shown) -> None:
    for crowd in view.all_crowds.values():
        for state in [state for state in crowd.classes if state.admission == Admission.ADMITTED]:
            waits = replace(state, state=TaskStates.WAITING)
            crowd.classes[waits] = crowd.classes.pop(state)
    for name, host in view.cells("host").items():
        view.cells("host")[name] = replace(host, used=Resources())


def _other_host(view: Shown) -> None:
    run, process = next(iter(view.machines.running.items()))
    other = OTHER if process.host == HOST else HOST
    view.machines.running[run] = MachineProcess(other, NEED)


def _older_run(view: Shown) -> None:
    for crowd in view.all_crowds.values():
        for state in [*crowd.classes]:
            crowd.classes[replace(state, run=state.run + 1)] = crowd.classes.pop(state)


QUIET: dict[str, tuple[str, Callable[[Shown], None], Callable[[checks.ClusterView], None]]] = {
    "room held for nobody": ("R11", _leaked_room, checks.lots_equal_the_tasks),
    "room held twice": ("R10", _twice_in_lots, checks.lots_equal_the_tasks),
    "waits, and no lot knows": ("R11", _waits_in_vain, checks.lots_equal_the_tasks),
    "a tally that is none": ("R11", _tally, checks.tallies_equal_the_tasks),
    "a host over its room": ("R9", _over_room, checks.hosts_keep_their_capacity),
    "a ledger that does not add up": ("R9", _wrong_sum, checks.hosts_keep_their_capacity),
    "a process no ledger has": ("R11", _unknown_process, checks.ledgers_equal_the_machines),
    "a run without a process": ("R11", _missing_process, checks.ledgers_equal_the_machines),
    "an end that nobody saw": ("R11", _kept_run, checks.ledgers_equal_the_machines),
    "a process nobody wants": ("R12", _unknown_process, checks.every_process_is_intended),
    "a process of an older run": ("R12", _older_run, checks.every_process_is_intended),
    "a process on another host": ("R9", _other_host, checks.every_process_is_intended),
    "waits though its pool has room": ("R15", _fits, checks.nobody_waits_who_fits),
    "waits beside an idle host": ("R15", _idle_host, checks.nobody_waits_who_fits),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_should_not_be_in_a_quiet_cluster_is_found(name: str) -> None:
    rule, change, question = QUIET[name]
    view = shown()
    question(view)
    change(view)
    with pytest.raises(Contradiction, match=f"^{rule} "):
        question(view)


def _wrong_books() -> Iterator[tuple[str, ShadowLedger]]:
    for rule, table in (("R10", "use"), ("R9", "hosts")):
        judged = served()[1].ledger
        ledger = ShadowLedger(judged._machines)
        ledger.use, ledger.hosts = dict(judged.use), dict(judged.hosts)
        getattr(ledger, table)[STORM_POOL if table == "use" else HOST] = (
            NEED if table == "use" else judged.hosts[HOST].__class__()
        )
        yield rule, ledger


def test_a_shadow_ledger_that_differs_from_the_actors_is_found() -> None:
    for rule, ledger in _wrong_books():
        with pytest.raises(Contradiction, match=f"^{rule} "):
            journaled.ledger_equals_the_actors(ledger, shown())


def test_what_was_acknowledged_and_is_in_no_journal_is_found() -> None:
    ledger = told([entry(JOB_KEY, MADE, ASKED)])
    made = Operation("c1", Asked.CREATE, job=JOB_KEY, begun_s=0.0)
    journaled.answers_equal_the_journal(ledger, [made])
    made.end(JobCreated(JOB_KEY), 1.0)
    journaled.answers_equal_the_journal(ledger, [made])
    with pytest.raises(Contradiction, match="^R1 "):
        journaled.answers_equal_the_journal(told([]), [made])
    own = RequestAnswered(f"c1-1{SCOPE}ann", b"", b"", 0.0)
    journaled.answers_equal_the_journal(told([entry(JOB_KEY, MADE, own)]), [made])
    made.end(Refused("NO", "no"), 1.0)
    with pytest.raises(Contradiction, match="^R2 "):
        journaled.answers_equal_the_journal(ledger, [made])
    journaled.answers_equal_the_journal(told([entry(JOB_KEY, ASKED, jf.JobForgotten())]), [made])


def test_a_stop_said_beside_the_history_belongs_to_it() -> None:
    cluster, _ = served()
    clients = cluster.clients
    clients.command("c2", cluster.nobody, message=StopJob(((0, 1),)))
    (beside,) = checks._beside(clients)
    assert beside.what is Asked.STOP_SOME and beside.job == cluster.nobody and not beside.known
