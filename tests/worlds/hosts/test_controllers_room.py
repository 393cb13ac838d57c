"""Controllers of a pool use no more than it says, and the storms' check of that can fail.

Chance is not enough: in a storm their room is seldom what an admission is short of.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.job.slice.task_config import Override
from peloton.actors.respool.messages import ROOT, PoolConfig, UpdatePool
from peloton.actors.respool.tree import Tree
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import HOST_CAPACITY, STORM_POOL, job_spec
from peloton.runtime.simulation.scan import Contradiction
from tests.worlds.planted import Planted, planted


def run_controllers() -> None:
    """Four of them, where there is room for one at a time."""
    cluster = CheckedCluster(hosts=3)
    limit = HOST_CAPACITY.times(3)
    config = PoolConfig("p", ROOT, HOST_CAPACITY, limit, controller_percent=25.0)
    cluster.ask(STORM_POOL, UpdatePool(config, force=True))
    for number in range(4):
        first = Override(0, job_spec(1, controller=True).default)
        spec = msgspec.structs.replace(job_spec(1), own_configs=1)
        cluster.create_job(spec, f"c{number}", overrides=(first,))
    cluster.run_until(cluster.over)
    assert cluster.checks is not None and cluster.checks.promises.places.checked
    cluster.check_quiet()


def test_controllers_run_one_after_another() -> None:
    run_controllers()


def test_controllers_beyond_their_room_are_noticed() -> None:
    no_limit = Planted(Tree, "ration_left", lambda _: lambda tree, pool, of: None)
    with planted(no_limit), pytest.raises(Contradiction, match="^R26 controllers of"):
        run_controllers()
