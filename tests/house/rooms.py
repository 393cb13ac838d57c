"""The rule about rooms: a folder holds at most 40 modules, because nobody finds things in more.

Must not be widened: `LARGE` names the folders that are larger today with what they have, and each
limit only falls, until the folder is cut into rooms and its line goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

MODULES_MAX = 40
LARGE = {
    "peloton/gateway": 137,
    "peloton/runtime/core": 65,
    "peloton/cli": 67,
    "peloton/chaos/cluster": 60,
    "peloton/actors/host": 44,
    "peloton/backends/mesos": 41,
    "tests/gateway": 101,
    "tests/worlds": 68,
    "tests/actors": 69,
    "tests/adapters": 67,
    "tests/core": 43,
}


def crowded(paths: Iterable[str], large: Mapping[str, int] = LARGE) -> Iterator[str]:
    """Folders with too many modules, and limits that are higher than what is there."""
    counts = Counter(path.rpartition("/")[0] for path in paths)
    for folder, count in sorted(counts.items()):
        limit = large.get(folder, MODULES_MAX)
        if count > limit:
            words = "make a folder of what belongs together"
            yield f"{folder} has {count} modules, {limit} at most: {words}"
        elif folder in large and count < limit:
            words = f"lower its limit to {count}" if count > MODULES_MAX else "remove its line"
            yield f"{folder} has {count} modules: {words} in tests/house/rooms.py"
    for folder in sorted(large.keys() - counts.keys()):
        yield f"{folder} is gone: remove its line in tests/house/rooms.py"
