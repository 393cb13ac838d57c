"""The rule about rooms: a folder holds at most 40 modules, because nobody finds things in more.

There are no exceptions: a folder that is full is cut by what belongs together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

MODULES_MAX = 40


def crowded(paths: Iterable[str]) -> Iterator[str]:
    """Folders with too many modules."""
    counts = Counter(path.rpartition("/")[0] for path in paths)
    for folder, count in sorted(counts.items()):
        if count > MODULES_MAX:
            words = "make a folder of what belongs together"
            yield f"{folder} has {count} modules, {MODULES_MAX} at most: {words}"
