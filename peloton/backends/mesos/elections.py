"""Which master leads, as ZooKeeper says.

Must not ask a master.
"""

from __future__ import annotations

from peloton.backends.mesos.operator_api import HttpDoor
from peloton.runtime.ports import Unreachable
from peloton.settings.mesos_master import ZooKeeperPlace

_INFO = "json.info_"


class NoLeader(Exception):
    """None is found: the text says why, without a credential."""


def elected(place: ZooKeeperPlace, *, timeout_s: float) -> HttpDoor:
    """The first of those that stand for election there. Raises `NoLeader`."""
    # Only where it is wanted: its client is of the fleet's extra.
    from peloton.runtime.adapters.zookeeper_leader import leader_of

    text = f"no master to be found in ZooKeeper at {place.servers}"
    try:
        found = leader_of(place.servers, place.folder, prefix=_INFO, timeout_s=timeout_s)
        if found is None:
            raise NoLeader(f"{text}: none is elected below {place.folder}")
        return HttpDoor(str(found["address"]["ip"]), int(found["address"]["port"]))
    except Unreachable as error:
        raise NoLeader(f"{text}: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise NoLeader(f"{text}: {type(error).__name__} {error}") from None
