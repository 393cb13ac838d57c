"""The nemesis moves clocks: which clocks, and how the order of frames is told without one.

The storm itself is in `test_nemesis.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from peloton.assembly.kinds import kinds
from peloton.chaos.nemesis.fleet import SHARDS
from peloton.chaos.nemesis.journal import UNORDERED_POLLS, UNORDERED_S, JournalWatch
from peloton.chaos.nemesis.timeline import Timeline
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.ports import ShardId
from tests.servers import moved_clock

HOOK = "tests/servers/moved_clock.py"
NOT_DAEMONS = ("chaos/", "cli/", "sdk/", "backends/keeper/", "runtime/simulation/")
OF_GRPC = {
    f"gateway/server/{name}.py"
    for name in ("completions", "inner_calls", "public_calls", "served_calls")
}
"""They compare with deadlines that gRPC's core takes from the clock of the machine."""
DAY_S = 86400.0


def test_each_clock_of_a_daemon_is_moved(root: Path) -> None:
    readers = {
        str(path.relative_to(root / "peloton"))
        for path in (root / "peloton").rglob("*.py")
        if re.search(r"\btime\.time(_ns)?\(\)", path.read_text())
    }
    daemons = {path for path in readers if not path.startswith(NOT_DAEMONS)}
    own = {f"{name.removeprefix('peloton.').replace('.', '/')}.py" for name in moved_clock.OWN}
    assert daemons - OF_GRPC == own


def test_a_process_with_a_moved_clock_is_so_far_ahead(root: Path) -> None:
    program = (
        "import time; from tests.servers import moved_clock; moved_clock.move(86400.0)\n"
        "from peloton.runtime.adapters.system_clock import SystemClock\n"
        "clock = SystemClock()\n"
        "print(clock.now() - time.time(), clock.now() <= clock.now())\n"
    )
    said = subprocess.check_output([sys.executable, "-c", program], cwd=root, text=True).split()
    assert abs(float(said[0]) - DAY_S) < 5.0 and said[1] == "True"


def test_the_program_with_a_moved_clock_is_peloton(root: Path) -> None:
    words = [sys.executable, str(root / HOOK), "-3600", "daemon", "--help"]
    assert "--config" in subprocess.check_output(words, cwd=root, text=True)


def watch_of(folder: Path, seen: dict[ShardId, list[tuple[float, int]]]) -> JournalWatch:
    """A watch that has found frames: of each its time, and the poll that found it."""
    watch = JournalWatch(cast(Any, None), Timeline(folder / "timeline.log"))
    codec = Codec(kinds(SHARDS))
    for shard, frames in seen.items():
        watch.scan.frames[shard] = [
            cast(Any, SimpleNamespace(position=at, body=codec.encode_frame(time_s, [])))
            for at, (time_s, _) in enumerate(frames, 1)
        ]
        watch._seen[shard] = [poll for _, poll in frames]
    return watch


def test_frames_are_in_the_order_of_their_times_or_of_the_polls(tmp_path: Path) -> None:
    """The owner of the second shard has a clock that is an hour ahead."""
    one, two = ShardId("jobmgr", 0), ShardId("jobmgr", 1)
    seen = {one: [(10.0, 1), (14.0, 5)], two: [(3611.0, 2), (3612.0, 3)]}
    watch = watch_of(tmp_path, seen)
    names = [(frame.shard, frame.position) for frame in watch.frames()]
    assert names == [(one, 1), (one, 2), (two, 1), (two, 2)] and watch.unordered == UNORDERED_S
    watch.clocks_differ = True
    names = [(frame.shard, frame.position) for frame in watch.frames()]
    assert names == [(one, 1), (two, 1), (two, 2), (one, 2)]
    assert watch.unordered == UNORDERED_POLLS


def test_frames_of_moved_clocks_are_counted(tmp_path: Path) -> None:
    """A storm that says that it moved clocks has to show it."""
    now_s = time.time()
    seen = {ShardId("jobmgr", 0): [(now_s, 0), (now_s + DAY_S, 0), (now_s - 3600.0, 1)]}
    watch = watch_of(tmp_path, seen)
    watch._polled_s = [now_s, now_s + 1.0]
    assert watch.of_moved_clocks() == 2
