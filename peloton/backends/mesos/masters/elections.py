"""The masters that stand for election in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.backends.mesos.masters.operator_api import HttpDoor
from peloton.runtime.ports import Unreachable
from peloton.settings.mesos_master import ZooKeeperPath

_INFO = "json.info_"


class NoLeader(Exception):
    """No leader is found; the text says why, without a credential."""


def candidates(place: ZooKeeperPath, *, timeout_s: float) -> list[HttpDoor]:
    """Return all masters that stand for election, the leader first. Raises `NoLeader`."""
    # Only where it is wanted: its client is of the fleet's extra.
    from peloton.runtime.adapters.zookeeper_leader import candidates_of

    text = f"no master to be found in ZooKeeper at {place.servers}"
    try:
        told = candidates_of(place.servers, place.folder, prefix=_INFO, timeout_s=timeout_s)
        found = [door_of(one["address"]) for one in told]
    except Unreachable as error:
        raise NoLeader(f"{text}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NoLeader(f"{text}: {type(error).__name__} {error}") from None
    if not found:
        raise NoLeader(f"{text}: none is elected below {place.folder}")
    return found


def door_of(address: Mapping[str, Any]) -> HttpDoor:
    """Return the address of a master that stands for election, from its node."""
    return HttpDoor(address["ip"], int(address["port"]), address.get("hostname") or "")
