"""What the doctor finds of a Mesos cluster: each precondition, kept and broken.

tests/adapters shows that a real master says it as read here.
"""

from __future__ import annotations

from typing import Any

import pytest

from peloton.backends.mesos.doctor import MesosReading, MesosWanted, findings_of, role_text
from tests.backends.mesos.words import Json, agent, scalar

ID = "peloton-" + "0a" * 16 + "-mesos"
OTHERS = "peloton-" + "0b" * 16 + "-other"
ABLE = [{"type": "MULTI_ROLE"}, {"type": "RESERVATION_REFINEMENT"}]
WANTED = MesosWanted("m:5050")


def here(hostname: str = "h0", **more: Any) -> Json:
    return agent("S0", hostname, **{"version": "1.12.0", "capabilities": ABLE, **more})


def framework(name: str = ID, *, connected: bool = True, **info: Any) -> Json:
    told = {"id": {"value": name}, "roles": ["peloton"], "failover_timeout": 604_800.0, **info}
    return {"framework_info": told, "connected": connected}


GOOD = MesosReading("m:5050", "1.12.0", [framework()], [], [here()], [], [], {}, 0.4)


def quota(role: str = "peloton", **limits: float) -> list[Json]:
    return [{"role": role, "limits": {kind: {"value": each} for kind, each in limits.items()}}]


def of(**changes: Any) -> MesosReading:
    return GOOD._replace(**changes)


def test_a_good_cluster_has_no_findings() -> None:
    assert findings_of(GOOD, WANTED) == []
    assert findings_of(of(quotas=quota(cpus=4.0), clock_s=None), WANTED) == []
    assert findings_of(of(removed=[framework(OTHERS)]), WANTED) == []


@pytest.mark.parametrize(
    ("reading", "wrong", "text"),
    [
        (of(version="1.3.2", agents=[here(version="1.3.2")]), True, "runs version 1.3.2"),
        (of(agents=[here(version="1.11.0")]), False, "agents 1.11.0"),
        (of(clock_s=90.2), False, "90 s ahead of ours"),
        (of(clock_s=-90.2), False, "90 s behind ours"),
        (of(frameworks=[], removed=[framework()]), True, "has been removed"),
        (of(frameworks=[framework(OTHERS)]), False, "no framework of ours is registered"),
        (of(frameworks=[framework(connected=False)]), False, "after 7 days it is removed"),
        (of(frameworks=[framework(roles=["edge"])]), False, "has the role edge, not peloton"),
        (of(flags={"roles": "edge,web"}), True, "knows no role peloton"),
        (of(quotas=quota(cpus=3.0)), False, "may have 3 of 4 cpus"),
        (of(agents=[]), True, "no agent is registered"),
        (of(agents=[here(), here()]), False, "one of them is a host: h0"),
        (of(agents=[here(deactivated=True)]), False, "drain at the master"),
        (of(agents=[here(capabilities=ABLE[:1])]), True, "no RESERVATION_REFINEMENT"),
        (of(unreachable=["b", "a", "d", "c"]), False, "from here: a, b, c and 1 more"),
    ],
)  # fmt: skip
def test_what_is_not_so_is_named(reading: MesosReading, wrong: bool, text: str) -> None:
    (found,) = findings_of(reading, WANTED)
    assert found.wrong == wrong and text in found.text and found.remedy


def test_what_the_settings_name_is_looked_for() -> None:
    own = WANTED._replace(framework="mine")
    (found,) = findings_of(GOOD, own)
    assert "no framework of ours" in found.text
    assert findings_of(of(frameworks=[framework("mine")]), own) == []
    (found,) = findings_of(GOOD, WANTED._replace(principal="p"))
    assert found.wrong and "has the principal none" in found.text
    lending = WANTED._replace(revocable=True)
    (found,) = findings_of(GOOD, lending)
    assert "no agent lends" in found.text
    lent = [scalar("cpus", 4.0), scalar("cpus", 2.0, revocable={})]
    assert findings_of(of(agents=[here(total_resources=lent)]), lending) == []


def test_the_role_in_a_line() -> None:
    assert role_text(GOOD, WANTED) == "peloton: weight 1, no quota"
    both = quota(cpus=3.0)
    both[0]["guarantees"] = {"mem": {"value": 64.0}}
    weighed = of(quotas=both, roles=[{"name": "peloton", "weight": 2.5}])
    text = "peloton: weight 2.5, mem at least 64, cpus at most 3"
    assert role_text(weighed, WANTED) == text
