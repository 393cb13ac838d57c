"""What the benchmarks count with: the tally of the change feed, and CPU by process and thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from bench.parts import measure
from bench.parts.calibration import Calibration
from bench.parts.follower import ENDED, STARTED, TaskTally
from peloton.ops.v1 import ops_pb2
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.shells.dispatcher import Threads

BUSY_S = 0.3


def event(key: str, *facts: str, at: float = 1.0, many: tuple[int, int] | None = None) -> object:
    made = ops_pb2.Event(key=key, facts=facts, at=at)
    if many is not None:
        made.instances.add(first=many[0], last=many[1])
    return made


def test_a_tally_counts_each_task_once_and_names_the_jobs_of_others() -> None:
    tally = TaskTally()
    tally.note(event("task/a", STARTED, many=(0, 9)))
    tally.note(event("task/a", ENDED, at=2.0, many=(0, 8)))
    tally.note(event("task/a/9", "RunEnded", at=3.0))
    assert (tally.started("a"), tally.ended("a")) == (10, 10)
    assert (tally.totals, tally.last_end_s, tally.again) == ({STARTED: 10, ENDED: 10}, 3.0, [])
    tally.note(event("task/a/9", "RunEnded"))
    tally.note(event("task/b/0", "RunEnded"))  # nobody said that it had started
    tally.note(event("task/b/0", "TaskStarted"))
    assert tally.again == ["a", "b"]
    assert (tally.started("b"), tally.totals[STARTED]) == (1, 11)
    assert [one.count for one in tally.starts] == [10, 1]


def test_cpu_is_counted_by_the_name_of_a_dispatchers_thread() -> None:
    spun, looked = threading.Event(), threading.Event()

    def spin() -> None:  # on the dispatcher's own thread
        until_s = time.thread_time() + BUSY_S
        while time.thread_time() < until_s:
            pass
        spun.set()
        looked.wait(30)

    threads = Threads(SystemClock(), on_idle=spin)
    threads.driver("shards")
    assert spun.wait(30)
    assert measure.cpu_of_threads_s(os.getpid(), "shards") >= BUSY_S / 2
    assert measure.cpu_of_threads_s(os.getpid(), "shard") == 0
    looked.set()
    threads.stop()


def test_the_tree_of_a_process_holds_its_grandchildren() -> None:
    code = """if True:
        import subprocess, sys
        with subprocess.Popen([sys.executable, "-c", "input()"]) as one:
            print("begun", flush=True)
    """
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        assert len(measure.tree(child.pid)) == 2
        assert child.pid in measure.tree(os.getpid())
        child.communicate(b"\n")


@pytest.mark.parametrize(("call_s", "verdict"), [(0.0011, "steady"), (0.0021, "trust only ratios")])
def test_a_calibration_says_how_the_machine_changed(call_s: float, verdict: str) -> None:
    before = Calibration(1e-8, 1e-3, 5e-4, 1e-3, 1e-3, 1e-3, load=0.5)
    assert before.drift(before._replace(call_s=call_s)).endswith(verdict)
