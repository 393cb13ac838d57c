"""A pool that is renamed or deleted takes nothing past the rules of the paths below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from peloton.api.v0.respool import respool_pb2 as respool
from peloton.runtime.core.principal import BASIC, Principal
from tests.gateway.access_fixture import JOBS, POOLS, RULES, Guarded, create_request, guarded
from tests.gateway.fleet_fixture import pool_config

CODE = grpc.StatusCode
BOB, ANN = Principal("bob", BASIC), Principal("ann", BASIC)
BELOW = """\
  /made: {administer: [bob], see: [ann]}
  /made/x/pay: {administer: [ann], see: [], submit: [], stop: []}
  /made/z/pay: {administer: [ann]}
  /made/open/deep: {see: [ann]}
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded"), RULES + BELOW) as found:
        found.pools["/made"] = found.open.make_pool("made")
        yield found


def renamed(fleet: Guarded, pool: str, name: str, by: Principal = BOB) -> tuple[Any, str]:
    """Give a pool below /made this name; code and text of the answer."""
    config = pool_config(name, fleet.pools["/made"], cpu=0.1)
    sent = respool.UpdateRequest(id={"value": pool}, config=config)
    code, text, data = fleet.call(f"{POOLS}.UpdateResourcePool", sent, by)
    assert not respool.UpdateResponse.FromString(data).HasField("error"), data
    return code, text


def test_a_rename_carries_no_pool_past_the_rule_of_its_path(fleet: Guarded) -> None:
    top = fleet.open.make_pool("x", fleet.pools["/made"], cpu=0.1)
    pay = fleet.open.make_pool("pay", top, cpu=0.1)
    code, text = renamed(fleet, top, "y")
    assert code == CODE.PERMISSION_DENIED
    assert text.endswith("bob has no permission to administer in each pool ruled below /made/x")
    data = fleet.call(f"{JOBS}.Create", create_request(pay), BOB)[2]
    assert b"resource pool not found" in data
    seen = fleet.call(f"{POOLS}.Query", respool.QueryRequest(), BOB)[2]
    assert pay.encode() not in seen
    # What keeps its name may be changed: the same rules apply to the pools below it.
    assert renamed(fleet, top, "x") == (CODE.OK, "")


def test_a_rename_plants_no_pool_at_a_path_that_a_rule_names(fleet: Guarded) -> None:
    top = fleet.open.make_pool("planted", fleet.pools["/made"], cpu=0.1)
    fleet.open.make_pool("pay", top, cpu=0.1)
    code, text = renamed(fleet, top, "z")
    assert (code, "each pool ruled below /made/z" in text) == (CODE.PERMISSION_DENIED, True)
    assert renamed(fleet, top, "elsewhere") == (CODE.OK, "")


def test_a_rename_is_free_where_the_caller_administers_all_that_rules_name(fleet: Guarded) -> None:
    top = fleet.open.make_pool("open", fleet.pools["/made"], cpu=0.1)
    assert renamed(fleet, top, "opened") == (CODE.OK, "")
    assert renamed(fleet, top, "open") == (CODE.OK, "")


def test_a_pool_is_not_deleted_from_above_the_rules_of_others(fleet: Guarded) -> None:
    top = fleet.open.make_pool("z", fleet.pools["/made"], cpu=0.1)
    sent = respool.DeleteRequest(path={"value": "/made/z"})
    code, text, _ = fleet.call(f"{POOLS}.DeleteResourcePool", sent, BOB)
    assert (code, "each pool ruled below /made/z" in text) == (CODE.PERMISSION_DENIED, True)
    assert renamed(fleet, top, "z2", Principal("root", BASIC, role="admin")) == (CODE.OK, "")
    sent = respool.DeleteRequest(path={"value": "/made/z2"})
    code, _, data = fleet.call(f"{POOLS}.DeleteResourcePool", sent, BOB)
    assert (code, data) == (CODE.OK, b"")
