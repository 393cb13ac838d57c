"""Every rig of a backend by its name: each of these passes the contract of backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from peloton.actors.host.messages import BackendUp
from tests.contracts.backends import BackendRig, ContainerRig, ProcessRig, SimulatedRig
from tests.contracts.mesos_backends import RealMesosRig, ScriptedMesosRig


def _folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue("tmp_path")
    return path.resolve() / "keeper"


RIGS: Mapping[str, Callable[[pytest.FixtureRequest], BackendRig]] = {
    "simulated": lambda request: SimulatedRig(),
    "process": lambda request: ProcessRig(_folder(request)),
    "scripted_mesos": lambda request: ScriptedMesosRig(),
    "real_mesos": lambda request: RealMesosRig(request.getfixturevalue("mesos")),
    "container": lambda request: ContainerRig(_folder(request)),
}


def begun(request: pytest.FixtureRequest) -> Iterator[BackendRig]:
    """The rig that a fixture is asked for, for one test."""
    made = RIGS[request.param](request)
    made.next_report(BackendUp)
    yield made
    assert made.senders == {made.backend.key}, "a report that does not name its backend"
    made.close()
