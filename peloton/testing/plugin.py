"""The pytest plug-in: the fixtures `cluster` and `fleet`, and the markers that shape them.

pytest loads this module in every run where Peloton is installed, so nothing else is imported before
a fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

if TYPE_CHECKING:
    from peloton.testing.cluster import Cluster
    from peloton.testing.fleet import Fleet

CLUSTER_MARK, FLEET_MARK = "peloton_cluster", "peloton_fleet"
T = TypeVar("T", bound=NamedTuple)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for mark, kind, of in (
        (CLUSTER_MARK, "ClusterShape", "cluster"),
        (FLEET_MARK, "FleetShape", "fleet"),
    ):
        config.addinivalue_line("markers", f"{mark}(**shape): fields of {kind} for `{of}`")


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The whole control plane in this process, in virtual time; without hosts at first.

    `@pytest.mark.peloton_cluster(daemons=3, seed=7)` sets fields of `ClusterShape`.
    """
    from peloton.testing.cluster import Cluster
    from peloton.testing.served_world import ClusterShape

    with Cluster(_shaped(request, CLUSTER_MARK, shape=ClusterShape())) as made:
        yield made


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """Real daemons as processes of their own, in real time; they end with the test.

    `@pytest.mark.peloton_fleet(hosts=5)` sets fields of `FleetShape`.
    """
    from peloton.testing.fleet import Fleet, FleetShape

    with Fleet(tmp_path / "fleet", _shaped(request, FLEET_MARK, shape=FleetShape())) as made:
        yield made


def _shaped(request: pytest.FixtureRequest, mark: str, *, shape: T) -> T:
    """Return the shape with what the closest marks of the test say. Raises UsageError."""
    wanted: dict[str, Any] = {}
    for found in reversed([*request.node.iter_markers(mark)]):
        wanted |= found.kwargs
        if found.args:
            raise pytest.UsageError(f"@pytest.mark.{mark} takes fields by name, got {found.args}")
    strangers = sorted(set(wanted) - set(shape._fields))
    if strangers:
        known = ", ".join(shape._fields)
        raise pytest.UsageError(f"@pytest.mark.{mark}: no field {strangers[0]}; there is {known}")
    return shape._replace(**wanted)
