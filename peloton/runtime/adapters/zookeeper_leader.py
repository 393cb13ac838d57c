"""Reads the candidates of an outside engine's leader election.

Its servers elect one by sequential nodes in ZooKeeper.
"""

from __future__ import annotations

import json
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from peloton.runtime.ports import Unreachable


def candidates_of(hosts: str, folder: str, *, prefix: str, timeout_s: float) -> list[Any]:
    """Return the JSON of the nodes with this prefix; the first leads. Raises Unreachable."""
    client = KazooClient(hosts, timeout=timeout_s, read_only=True)
    found = []
    try:
        client.start(timeout=timeout_s)
        for name in sorted(client.get_children(folder)):
            if name.startswith(prefix):
                try:
                    found.append(json.loads(client.get(f"{folder}/{name}")[0]))
                except NoNodeError:  # it has left since
                    continue
    except (KazooException, client.handler.timeout_exception, OSError) as error:
        raise Unreachable(f"{hosts}{folder}: {type(error).__name__} {error}") from error
    finally:
        client.stop()
        client.close()
    return found
