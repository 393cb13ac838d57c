"""Runs the rules about who may import what, and shows that each can fail.

No kind is excused: what two kinds share is a message or a value.
"""

from __future__ import annotations

import pytest

from tests.house import floors
from tests.house.tree import Rule, complaints, hold, judge, read

GATEWAY = "peloton/gateway/v0/job_manager.py"
BAD: list[tuple[Rule, str, str]] = [
    (floors.kinds, "job/decide.py", "from peloton.actors.task.state import Task"),
    (floors.kinds, "job/decide.py", "from peloton.actors.task import state"),
    (floors.kinds, "job/decide.py", "from peloton.actors.job.slice.state import Slice"),
    (floors.kinds, "job/slice/tally.py", "import peloton.actors.job.facts"),
    (floors.kinds, "job/decide.py", "from peloton.actors.job.name.decide import take"),
    (floors.kinds, "job/workflow/decide.py", "from peloton.actors.job.version.state import Kept"),
    (floors.kinds, "job/decide.py", "from peloton.actors.archive.decide import kept"),
    (floors.kinds, "host/live/health.py", "from peloton.actors.task.state import Task"),
    (floors.kinds, "task/decide.py", "from ..job.facts import Created"),
    (floors.kinds, "task/decide.py", "from peloton.placement.placer import Placer"),
    (floors.kinds, "task/decide.py", "from peloton.actors.host.drain_view import why_not_down"),
    (floors.kinds, "resources.py", "from peloton.actors.task.messages import Launch"),
    (floors.faces, GATEWAY, "from peloton.actors.host.granting import grant"),
    (floors.faces, GATEWAY, "from peloton.actors.job import state"),
    (floors.faces, GATEWAY, "from peloton.actors.respool.tree import Tree"),
    (floors.faces, GATEWAY, "import peloton.placement.placer"),
    (floors.homes, "task/decide.py", "import pykka"),
    (floors.homes, "task/decide.py", "from peloton.api.v0.job import job_pb2"),
    (floors.homes, "job/decide.py", "import numpy as np"),
]
GOOD: list[tuple[Rule, str, str]] = [
    (floors.kinds, "job/decide.py", "from peloton.actors.task.messages import Launch"),
    (floors.kinds, "job/decide.py", "from peloton.actors.task import messages"),
    (floors.kinds, "host/live/health.py", "from peloton.actors.host.state import Host"),
    (floors.kinds, "task/decide.py", "from peloton.actors.host.machine_messages import SetUse"),
    (floors.kinds, "job/decide.py", "from peloton.actors.job.slice import messages as slices"),
    (floors.kinds, "task/decide.py", "from peloton.actors.host.run_spec import RunSpec"),
    (floors.kinds, "host/inventory/decide.py", "from peloton.actors.host.drain_view import why"),
    (floors.kinds, "job/decide.py", "from peloton.actors.job.facts import Created"),
    (floors.kinds, "job/slice/tally.py", "from peloton.actors.job.slice.state import Slice"),
    (floors.kinds, "job/slice/tally.py", "from peloton.actors.resources import Resources"),
    (floors.faces, GATEWAY, "from peloton.actors.job import messages as m, facts as f"),
    (floors.faces, GATEWAY, "from peloton.actors.host.drain_view import why_not_down"),
    (floors.faces, GATEWAY, "from peloton.actors.host.state import Host"),
    (floors.faces, GATEWAY, "from peloton.actors.mentions import job_mention"),
    (floors.faces, "job/kind.py", "from peloton.actors.job.state import Job"),
    (floors.homes, "task/state.py", "import immutables\nimport msgspec"),
]


def path_of(file: str) -> str:
    return file if file.startswith("peloton/") else f"peloton/actors/{file}"


@pytest.mark.parametrize(
    "rule", [floors.kinds, floors.faces, floors.homes], ids=lambda rule: rule.__name__
)
def test_the_package_keeps(rule: Rule) -> None:
    hold(complaints(rule, read("peloton")))


@pytest.mark.parametrize(("rule", "file", "source"), BAD)
def test_it_is_noticed(rule: Rule, file: str, source: str) -> None:
    assert judge(rule, source, path_of(file))


@pytest.mark.parametrize(("rule", "file", "source"), GOOD)
def test_it_is_allowed(rule: Rule, file: str, source: str) -> None:
    assert judge(rule, source, path_of(file)) == []
