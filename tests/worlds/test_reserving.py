"""Hosts that are held for tasks, and hosts that move, on simulated clusters with crashes.

Must not look into messages: what counts is where tasks run, and who owns which host.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from peloton.actors.host.hold_messages import (
    LEVEL_TASK_HOLDS,
    HeldForTask,
    HoldForTask,
    ReleaseTaskHolds,
)
from peloton.actors.host.inventory.messages import POOLS_OWNER, HostPoolChanged, MakeHostPool
from peloton.actors.host.messages import MaintenanceSet
from peloton.actors.host.move_messages import MoveToPool
from peloton.actors.host.state import Host, Maintenance
from peloton.actors.job.messages import StartInstances, StopJob
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.cluster import ClusterSetup
from peloton.chaos.cluster.machines import Fate
from peloton.runtime.vocabulary import Key

HOLD_S = 180.0
LONG = Fate(10_000.0)


def cluster_of(fate: Fate = LONG, hosts: int = 3) -> CheckedCluster:
    setup = ClusterSetup(fates=lambda run: fate, level=LEVEL_TASK_HOLDS)
    return CheckedCluster(hosts=hosts, setup=setup)


def hosts_of(cluster: CheckedCluster) -> dict[Key, Host]:
    return dict(cluster.cells("host"))


def where(cluster: CheckedCluster, crowd: Key, member: int) -> set[Key]:
    """The hosts that have a run of this task which holds anything."""
    return {
        name
        for name, host in hosts_of(cluster).items()
        for some in host.runs.grouped.get(crowd, ())
        if member in some.members and some.resources != type(some.resources)()
    }


def wait_for(crowd: Key, member: int = 0, **more: Any) -> HoldForTask:
    return HoldForTask(f"t-{member}", crowd, member, "zoe", HOLD_S, **more)


def crowd_of(job: Key) -> Key:
    return Key(f"task/{job.partition('/')[2]}/0")
