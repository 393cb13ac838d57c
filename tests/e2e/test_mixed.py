"""Batch, stateless, stateful and daemon jobs on one real cluster, while much is done to it at once.

A host drains and returns, services are updated, pools are edited so that one takes back what it is
entitled to, the daemon and the keeper are killed. The runs' own notes say who was up when, and how
often an instance succeeded; what the cluster says of itself counts for where it ends. Neither kill
ends a run, so floors hold all the time. Instances with volumes stay on their hosts, whatever is
done, and find what their runs before have written.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.api.v0.task import task_pb2 as task
from peloton.sdk.client import Client
from peloton.sdk.hosts import state_text
from peloton.sdk.stateless import BatchOptions, is_over, state_of
from tests.e2e import cluster as c
from tests.service_notes import BEGUN, SAY, TOLD, ServiceNotes

HOSTS, INSTANCES, DOWN_MAX = 4, 6, 2
SHORT, LENT, OWNED = 60, 6, 6
"""Instances of the batch jobs: many short ones, those that give way, and those they give way to."""
SHORT_BEFORE = 20
"""Once so many short ones have succeeded, the others wait until the daemon has been killed."""
SHORT_CPU, SMALL_CPU, CPU = 0.05, 0.05, 0.5
LENT_CPUS, OWNED_CPUS = (INSTANCES + LENT) * CPU, OWNED * CPU
HEALTHY, RUNNING = task.HealthState.HEALTHY, task.TaskState.RUNNING
SERVE = f"""{SAY}
trap '{TOLD}; exit 0' TERM
{BEGUN}
touch well
sleep 1000 & wait
"""
KEPT, COUNT = 3, "echo x >> data/runs; exec sleep 1000"
"""Instances with volumes, and what each run of them leaves there."""
SUCCEED = "trap '' TERM; echo $PELOTON_INSTANCE_ID >> {notes}"
"""Who has noted it succeeds: nobody can end it between the note and its exit code."""


class Daemon(c.Cluster):
    """One that is alone, as a minicluster, but that is soon to take back what a pool borrowed."""

    def words(self) -> list[str]:
        """With a file of settings."""
        hosts = [{"name": f"host{number}"} for number in range(HOSTS)]
        raw = {
            "cluster": "mixed",
            "journal": {"sqlite": {"folder": "data"}},
            "listen": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
            "backend": {"process": {"folder": "data/keeper", "hosts": hosts}},
            "preemption": {"after": "5s"},
        }
        file = self.folder / "daemon.yaml"
        file.write_text(yaml.safe_dump(raw))
        return ["daemon", "--config", str(file)]


class Service:
    """A service whose instances note when they begin and when they are told to end."""

    def __init__(self, folder: Path, name: str, *, pool: str, cpu: float) -> None:
        self.name, self.pool, self.cpu = name, pool, cpu
        self.notes, self.job = ServiceNotes(folder / name, INSTANCES), ""
        self.gate = folder / f"{name}.update"
        self.checks = {"old": "test -e well", "new": f"test -e well && {c.until_there(self.gate)}"}
        """An update goes no further than its first batch until its gate is made."""

    def spec(self, word: str) -> dict[str, Any]:
        """Its spec by the config of this word."""
        script = self.notes.script(SERVE)
        check = {
            "enabled": True,
            "type": "HEALTH_CHECK_TYPE_COMMAND",
            "command_check": {"command": self.checks[word]},
            **dict.fromkeys(("initial_interval_secs", "interval_secs"), 1),
            "timeout_secs": 20,
        }
        container = {
            "resource": {"cpu_limit": self.cpu, "mem_limit_mb": 1.0, "disk_limit_mb": 1.0},
            "entrypoint": {"value": script},
            "environment": [{"name": "WORD", "value": word}],
            "liveness_check": check,
        }
        return {
            "name": self.name,
            "owning_team": "team",
            "instance_count": INSTANCES,
            "sla": {"preemptible": True, "maximum_unavailable_instances": DOWN_MAX},
            "default_spec": {"containers": [container]},
        }

    def create(self, client: Client) -> None:
        self.job = str(client.stateless.create(self.pool, self.spec("old")).job_id.value)

    def update(self, client: Client) -> None:
        """Give all its instances the new config, two at a time."""
        how = BatchOptions(batch=DOWN_MAX)
        client.stateless.replace(self.job, self.spec("new"), pool=self.pool, how=how)

    def restart(self, client: Client) -> None:
        """Give all its instances new runs, two at a time."""
        client.stateless.restart(self.job, how=BatchOptions(batch=DOWN_MAX))

    def is_updated(self, client: Client) -> bool:
        """Whether its newest workflow is over; it must have succeeded."""
        status = client.stateless.get(self.job).workflow_info.status
        assert not is_over(status) or state_of(status) == "SUCCEEDED"
        return is_over(status)

    def is_well(self, client: Client) -> bool:
        """Whether all its instances run and are healthy."""
        found = client.tasks.list(self.job).result.value.values()
        healthy = [one for one in found if one.runtime.healthy == HEALTHY]
        return len(healthy) == INSTANCES

    def up(self) -> dict[int, str]:
        """The instances that are up, with their configs, and that no more than allowed were down
        at once since all of them ran."""
        down = self.notes.most_down()
        assert len(down) <= DOWN_MAX, f"{self.name}: {down} were down at once"
        return self.notes.up()


def pool_config(path: str, limit: float, reserved: float) -> dict[str, Any]:
    """A pool that only cpu is scarce in."""
    limits = {"cpu": limit, "memory": 1000.0, "disk": 1000.0, "gpu": 0.0}
    resources = [
        {
            "kind": kind,
            "reservation": reserved if kind == "cpu" else 0.0,
            "limit": most,
            "share": 1.0,
        }
        for kind, most in limits.items()
    ]
    return {"name": path.rpartition("/")[2], "resources": resources}


def batch(client: Client, pool: str, instances: int, *, cpu: float, script: str) -> str:
    """The id of a batch job that may be preempted; it goes before services of its pool."""
    resource = {"cpuLimit": cpu, "memLimitMb": 1.0, "diskLimitMb": 1.0}
    config = {"resource": resource, "command": {"shell": True, "value": script}}
    sla = {"preemptible": True, "priority": 1}
    spec = c.job(instances, script, config=config, sla=sla)
    return str(client.jobs.create(pool, spec).jobId.value)


def noted(file: Path) -> Counter[int]:
    """How often each instance has noted that it succeeds."""
    return Counter(int(line) for line in file.read_text().split()) if file.exists() else Counter()


def hosts_of(client: Client, job: str) -> list[str]:
    """Where the instances of a job run."""
    found = client.tasks.list(job).result.value.values()
    return sorted(one.runtime.host for one in found if one.runtime.state == RUNNING)


def places_of(client: Client, job: str) -> dict[int, str]:
    """Where each instance of a job runs."""
    found = client.tasks.list(job).result.value.items()
    return {k: one.runtime.host for k, one in found if one.runtime.state == RUNNING}


def run_numbers(client: Client, job: str) -> dict[str, int]:
    """The number of the present run of each instance, by its name."""
    found = client.tasks.list(job).result.value.values()
    names = (one.runtime.mesosTaskId.value.rpartition("-") for one in found)
    return {name: int(run) for name, _, run in names}


def host_states(client: Client) -> dict[str, str]:
    return {each.hostname: state_text(each.state) for each in client.hosts.query().host_infos}


def use_of_pools(client: Client) -> dict[str, float]:
    """The cpus that are charged to each pool, but those of nobody."""
    found: dict[str, float] = {}
    for pool in client.pools.list().resourcePools:
        for use in pool.usage:
            if use.kind == "cpu" and use.allocation:
                found[pool.path.value] = round(use.allocation, 3)
    return found


class Storm:
    """All the jobs of one cluster, and what is done to it."""

    def __init__(self, cluster: c.Cluster) -> None:
        self.cluster, folder = cluster, cluster.folder
        self.roomy = Service(folder, "roomy", pool="/services", cpu=SMALL_CPU)
        self.borrower = Service(folder, "borrower", pool="/team/lent", cpu=CPU)
        self.services = [self.roomy, self.borrower]
        self.notes = {name: folder / name for name in ("short", "lent", "owned")}
        self.gates = {name: folder / f"{name}.gate" for name in ("short", "lent", "owned")}
        self.jobs: dict[str, str] = {}

    def create(self, client: Client) -> None:
        """The pools, and jobs that run until they are told."""
        for path, limit, reserved in (
            ("/services", 4.0, 0.0),
            ("/short", 6 * SHORT_CPU, 0.0),
            ("/team", LENT_CPUS, OWNED_CPUS),
            ("/team/lent", LENT_CPUS, 0.0),
            ("/team/owner", CPU, 0.0),
        ):
            client.pools.create(path, pool_config(path, limit, reserved))
        for each in self.services:
            each.create(client)
        agent = c.job(0, "exec sleep 1000")
        agent.update(name="agent", type="DAEMON")
        self.jobs["agent"] = str(client.jobs.create("/services", agent).jobId.value)
        resource = {"cpuLimit": SMALL_CPU, "memLimitMb": 1.0, "diskLimitMb": 1.0}
        volume = {"containerPath": "/data", "sizeMB": 5}
        kept = c.job(KEPT, COUNT, config={"resource": resource, "volume": volume}, type="SERVICE")
        self.jobs["kept"] = str(client.jobs.create("/services", kept).jobId.value)
        wait = "while [ ! -e {gate} ]; do sleep 0.5; done; " + SUCCEED
        for name, pool, instances in (
            ("lent", "/team/lent", LENT),
            ("owned", "/team/owner", OWNED),
        ):
            script = wait.format(gate=self.gates[name], notes=self.notes[name])
            self.jobs[name] = batch(client, pool, instances, cpu=CPU, script=script)

    def create_short(self, client: Client) -> None:
        """Many tasks that fill their pool."""
        notes, gate = self.notes["short"], self.gates["short"]
        enough = f"test -e {notes} && test $(wc -l < {notes}) -ge {SHORT_BEFORE}"
        script = f"if {enough}; then {c.until_there(gate)}; fi; " + SUCCEED.format(notes=notes)
        self.jobs["short"] = batch(client, "/short", SHORT, cpu=SHORT_CPU, script=script)

    def settled(self, client: Client) -> bool:
        """Whether all that can run runs."""
        return (
            all(each.is_well(client) for each in self.services)
            and len(set(hosts_of(client, self.jobs["agent"]))) == HOSTS
            and len(hosts_of(client, self.jobs["lent"])) == LENT
            and len(places_of(client, self.jobs["kept"])) == KEPT
        )

    def kept_runs(self) -> Counter[str]:
        """How many runs have written into each volume, by the name of its instance."""
        files = (self.cluster.folder / "data").glob("**/volumes/**/runs")
        found = {file: len(file.read_text().split()) for file in files}
        return Counter({next(filter(self._is_kept, file.parts)): n for file, n in found.items()})

    def _is_kept(self, part: str) -> bool:
        return part.startswith(self.jobs["kept"])

    def edit_pools(self, client: Client) -> None:
        """From now on one of the team's pools is entitled to what the other one has."""
        path = "/team/owner"
        client.pools.update(path, pool_config(path, OWNED_CPUS, OWNED_CPUS))

    def kill_keeper(self) -> None:
        """What runs goes on. How it ends then is not known, so a batch task would run again."""
        lock = self.cluster.folder / "data" / "keeper" / "lock"
        os.kill(int(lock.read_text()), signal.SIGKILL)

    def check_floors(self) -> None:
        for each in self.services:
            each.up()


# ---- what the notes prove ----


def notes_of(folder: Path, *lines: str) -> ServiceNotes:
    """Of a service of three instances, which have begun in one tick."""
    found = ServiceNotes(folder / "notes", 3)
    found.file.write_text("".join(f"{line}\n" for line in (*FIRST, *lines)))
    return found


FIRST = [f"up {instance} old 1.00" for instance in range(3)]


def test_a_floor_that_is_broken_is_proven_in_whatever_order_the_lines_are(tmp_path: Path) -> None:
    told = [f"down {instance} old 2.0{instance}" for instance in range(3)]
    began = [f"up {instance} new 2.2{instance}" for instance in range(3)]
    by_instance = [line for pair in zip(told, began, strict=True) for line in pair]
    for lines in (told + began, by_instance, [*reversed(told), *reversed(began)]):
        notes = notes_of(tmp_path, *lines)
        assert notes.most_down() == {0, 1, 2}
        assert notes.up() == dict.fromkeys(range(3), "new")
    assert notes_of(tmp_path, *told, *began[:2]).most_down() == {0, 1}, "nobody knows of the third"


def test_what_is_of_one_tick_has_no_order(tmp_path: Path) -> None:
    """Nor has it one that lines of other instances would have."""
    turns = ["down 0 old 2.00", "up 0 new 2.05", "down 1 old 2.05", "up 1 new 2.10"]
    assert len(notes_of(tmp_path, *turns).most_down()) == 1
    at_once = ["down 0 old 2.00", "up 0 new 2.00", "down 1 old 2.00", "up 1 new 2.01"]
    notes = notes_of(tmp_path, *at_once)
    assert (notes.most_down(), notes.up()) == (set(), {0: "new", 1: "new", 2: "old"})


def test_nobody_is_down_before_all_have_begun_or_without_both_notes(tmp_path: Path) -> None:
    notes = notes_of(tmp_path, "down 0 old 2.00", "down 0 new 3.00", "up 0 new 4.00")
    assert [(one.first, one.last) for one in notes.downs()] == [(301, 399)]
    late = ServiceNotes(notes.file, 4)
    assert late.most_down() == set(), "the fourth has not begun"


# ---- all of it ----


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_floors_hold_and_goals_are_reached_whatever_is_done_at_once(tmp_path: Path) -> None:
    with c.started(Daemon(tmp_path)) as cluster:
        storm = Storm(cluster)
        with cluster.client() as client:
            storm.create(client)
            c.wait_for(lambda: storm.settled(client), "the jobs to run")
            homes = places_of(client, storm.jobs["kept"])
            storm.create_short(client)
            storm.edit_pools(client)
            drained = hosts_of(client, storm.borrower.job)[0]
            storm.roomy.update(client)
            client.hosts.start_maintenance(drained)
            c.wait_for(lambda: storm.roomy.notes.began("new"), "the update to go on")
            c.wait_for(lambda: noted(storm.notes["short"]), "the short ones to go on")
        cluster.kill()
        for each in storm.services:
            each.gate.touch()
        storm.gates["short"].touch()
        cluster.start()
        with cluster.client() as client:
            go_on(storm, client, drained)
            finish(storm, client, homes)


def go_on(storm: Storm, client: Client, drained: str) -> None:
    """The pool gets back what it is entitled to, then the host goes down and returns.

    What gave way keeps the borrower at its floor, so its host is not down before there is room.
    """
    c.wait_for(
        lambda: len(hosts_of(client, storm.jobs["owned"])) == OWNED, "the pool to get its own back"
    )
    storm.check_floors()
    storm.borrower.update(client)
    for gate in storm.gates.values():
        gate.touch()
    c.wait_for(lambda: host_states(client)[drained] == "DOWN", "the host to be down")
    client.hosts.complete_maintenance(drained)


def finish(storm: Storm, client: Client, homes: dict[int, str]) -> None:
    """Every goal is reached, and nothing more is charged or runs than what shall run."""
    for name, instances in (("short", SHORT), ("lent", LENT), ("owned", OWNED)):
        found = c.ended(client, storm.jobs[name])
        assert found == ("SUCCEEDED", {"SUCCEEDED": instances}), name
        assert noted(storm.notes[name]) == dict.fromkeys(range(instances), 1), name
    c.wait_for(lambda: storm.roomy.is_updated(client), "its update to end")
    storm.roomy.restart(client)
    storm.kill_keeper()
    services = storm.services
    c.wait_for(lambda: all(each.is_updated(client) for each in services), "the workflows to end")
    c.wait_for(lambda: all(each.is_well(client) for each in services), "the services to be well")
    for each in services:
        assert each.up() == dict.fromkeys(range(INSTANCES), "new"), each.name
    agent = storm.jobs["agent"]
    c.wait_for(lambda: len(hosts_of(client, agent)) == HOSTS, "the daemon job to be everywhere")
    assert len(set(hosts_of(client, agent))) == HOSTS
    kept = storm.jobs["kept"]
    c.wait_for(lambda: places_of(client, kept) == homes, "the instances with volumes to be home")
    numbers = run_numbers(client, kept)
    c.wait_for(lambda: storm.kept_runs() == numbers, f"each run in its volume: {numbers}")
    roomy = (INSTANCES + KEPT) * SMALL_CPU + HOSTS * 0.01
    borrowed = INSTANCES * CPU
    expected = {
        "/": roomy + borrowed, "/services": roomy, "/team": borrowed, "/team/lent": borrowed,
    }  # fmt: skip
    expected = {path: round(cpus, 3) for path, cpus in expected.items()}
    c.wait_for(lambda: use_of_pools(client) == expected, f"the pools to be charged {expected}")
    for job in (agent, kept, *(each.job for each in services)):
        client.tasks.stop(job)
    c.wait_for(lambda: not use_of_pools(client), "nothing to be charged any more")
