"""The workflow and the autoscaler in a cluster of processes: their calls reach real services."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from autoscaler.kind import Autoscaler, Configure, Observe, Policy
from workflow.kind import Cancel, Phase, Progress, Resume, Start, Step, Workflow

from peloton.sdk.actors import ActorRefused
from tests.conftest import ROOT
from tests.e2e.cluster import Cluster, pool, running
from tests.e2e.extensions.distributions import with_info

EXAMPLES = ROOT / "examples" / "extensions"
POOL = "/tests"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    folder = tmp_path / "site"
    for name in ("workflow", "autoscaler"):
        shutil.copytree(EXAMPLES / name / name, folder / name)
    entries = ("workflow = workflow.kind:WORKFLOW", "autoscaler = autoscaler.kind:AUTOSCALER")
    with_info(folder, "peloton-examples", *entries)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with running(tmp_path) as begun:
        with begun.client() as client:
            pool(client)
        yield begun


def config(command: str) -> dict[str, Any]:
    resource = {"cpuLimit": 0.1, "memLimitMb": 16, "diskLimitMb": 1}
    task = {"resource": resource, "command": {"shell": True, "value": command}}
    return {"instanceCount": 1, "defaultConfig": task}


def phase_of(cluster: Cluster, name: str, *phases: Phase) -> Workflow:
    """The workflow once it is in one of these phases."""
    with cluster.client() as client:
        for flow in client.actors("workflow").watch(name, into=Workflow):
            if flow is not None and flow.phase in phases:
                return flow  # type: ignore[no-any-return]
    raise AssertionError("the stream ended")


@pytest.mark.slow  # processes
def test_a_workflow_runs_its_graph_and_outlives_its_daemon(
    cluster: Cluster, tmp_path: Path
) -> None:
    gate, once = tmp_path / "gate", tmp_path / "once"
    steps = (
        Step("first", config("true")),
        Step("waits", config(f"until [ -e {gate} ]; do sleep 0.1; done"), ("first",)),
        Step("fails once", config(f"mkdir {once} && exit 3 || true"), ("first",), retries=1),
        Step("last", config("true"), ("waits", "fails once")),
    )
    named = tuple(Step(s.name.replace(" ", "-"), s.job, s.after, s.retries) for s in steps)
    named = (*named[:3], Step("last", named[3].job, ("waits", "fails-once")))
    with cluster.client() as client:
        flows = client.actors("workflow")
        with pytest.raises(ActorRefused, match=r"steps\[0\]\.after: 'none' is no step before"):
            flows.tell("nightly", Start(POOL, (Step("a", config("true"), ("none",)),)))
        flows.tell("nightly", Start(POOL, named))
        for flow in flows.watch("nightly", into=Workflow):
            if flow.steps["waits"].progress == Progress.RUNNING:
                break
    cluster.kill()
    gate.touch()
    cluster.start()
    flow = phase_of(cluster, "nightly", Phase.SUCCEEDED, Phase.FAILED)
    assert flow.phase == Phase.SUCCEEDED, flow
    assert {one.progress for one in flow.steps.values()} == {Progress.SUCCEEDED}
    assert flow.steps["fails-once"].attempt == 2
    with cluster.client() as client:
        names = sorted(job.name for job in client.jobs.query().results)
    assert names.count("nightly.last") == 1 and names.count("nightly.fails-once") == 2


@pytest.mark.slow  # processes
def test_a_workflow_is_cancelled_and_resumed(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    step = Step("waits", config(f"until [ -e {gate} ]; do sleep 0.1; done"))
    with cluster.client() as client:
        flows = client.actors("workflow")
        flows.tell("one", Start(POOL, (step,)))
        flows.tell("one", Cancel())
        assert phase_of(cluster, "one", Phase.CANCELLED).steps["waits"].progress != "succeeded"
        gate.touch()
        flows.tell("one", Resume())
        assert phase_of(cluster, "one", Phase.SUCCEEDED).runs == 2


@pytest.mark.slow  # processes
def test_an_autoscaler_sets_the_instances_of_a_service(cluster: Cluster) -> None:
    spec = yaml.safe_load((ROOT / "examples" / "service.yaml").read_text())
    with cluster.client() as client:
        service = client.stateless.create(POOL, spec).job_id.value
        scalers = client.actors("autoscaler")
        scalers.tell("web", Configure(Policy(service, 10.0, 1, 6, down_after_s=0.5)))
        wanted = iter((45.0, 12.0))
        sizes: list[int] = []
        for scaler in scalers.watch("web", into=Autoscaler):
            if scaler is None or scaler.wanted or not scaler.instances:
                continue
            if not sizes or sizes[-1] != scaler.instances:
                sizes.append(scaler.instances)
                value = next(wanted, None)
                if value is None:
                    break
                scalers.tell("web", Observe(value))
        assert sizes == [3, 5, 2]
        info = client.stateless.get(service).job_info
        assert info.spec.instance_count == 2
