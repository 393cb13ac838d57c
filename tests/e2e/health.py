"""What a minicluster says of itself over HTTP: `/ready` and `/metrics`.

Turns the addresses that it wrote into answers.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request

from tests.e2e.cluster import Cluster

ANSWER_S_MAX = 60.0


def _address(cluster: Cluster) -> str:
    """Of its last life."""
    (*_, last) = (line for line in cluster.errors().splitlines() if "ready: http " in line)
    return str(last.split()[-1])


def _asked(cluster: Cluster, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://{_address(cluster)}{path}", timeout=ANSWER_S_MAX
        ) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ready(cluster: Cluster) -> tuple[int, str]:
    """Code and text."""
    return _asked(cluster, "/ready")


def figures(cluster: Cluster) -> dict[str, float]:
    """All figures by their names and labels, as in the text."""
    lines = _asked(cluster, "/metrics")[1].splitlines()
    found = (re.fullmatch(r"([^# ]\S*) (\S+)", line) for line in lines)
    return {each[1]: float(each[2]) for each in found if each is not None}
