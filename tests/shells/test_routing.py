"""What a daemon's routing table says of services that run on several members."""

from __future__ import annotations

from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import MemberNode, MembershipView
from peloton.runtime.shells.claim import MembershipStatus
from peloton.runtime.shells.routing import RoutingTable
from peloton.runtime.shells.shell_messages import Renamed
from tests.toy.kinds import KINDS

ROLES = {"m0": ("placement",), "m1": ("house",), "m2": ("house", "placement")}


def table(me: str) -> RoutingTable:
    """Of a member of three, two of which place."""
    routes = RoutingTable(KINDS, Sharding(KINDS, {"house": 4}))
    members = {name: MemberNode(f"{name}:1", roles) for name, roles in ROLES.items()}
    view = MembershipView(me, 1, members, {})
    routes.membership_status = MembershipStatus(me, True, view, "")
    routes.roles = {"placer": "placement"}
    return routes


def test_a_service_has_its_members_name_and_its_place_among_those_with_its_role() -> None:
    assert table("m0").named("placer") == Renamed("m0", 0, 2)
    assert table("m2").named("placer") == Renamed("m2", 1, 2)


def test_a_service_without_a_role_or_a_place_has_the_name_alone() -> None:
    assert table("m1").named("placer") == Renamed("m1")
    assert table("m0").named("backend") == Renamed("m0")


def test_a_daemon_alone_has_no_name() -> None:
    routes = table("m0")
    routes.membership_status = None
    assert routes.named("placer") == Renamed("")
