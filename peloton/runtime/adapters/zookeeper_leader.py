"""Who leads an outside engine, where its servers elect one by nodes in sequence.

Turns a folder of ZooKeeper into the words of its first node. It must not write, nor watch.
"""

from __future__ import annotations

import json
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from peloton.runtime.ports import Unreachable


def leader_of(hosts: str, folder: str, *, prefix: str, timeout_s: float) -> Any:
    """The JSON of the first node with this prefix; None if there is none. Raises Unreachable."""
    client = KazooClient(hosts, timeout=timeout_s, read_only=True)
    try:
        client.start(timeout=timeout_s)
        names = [one for one in client.get_children(folder) if one.startswith(prefix)]
        return json.loads(client.get(f"{folder}/{min(names)}")[0]) if names else None
    except (KazooException, client.handler.timeout_exception, OSError) as error:
        raise Unreachable(f"{hosts}{folder}: {type(error).__name__} {error}") from error
    finally:
        client.stop()
        client.close()
