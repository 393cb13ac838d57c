"""The executor on threads of this process: what it has beyond the standard library, and its errors.

What it shares with that shows `test_standard_suite.py`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from peloton.sdk.errors import BadSpec, Unsupported
from peloton.sdk.executor import PelotonExecutor, PelotonFuture, task
from peloton.sdk.executor.calls import CallQueue, ExecutorCall
from peloton.sdk.executor.executor import _open as open_ones
from peloton.sdk.executor.options import WorkerSettings

WITHIN_S = 60.0
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def executor() -> Iterator[PelotonExecutor]:
    with PelotonExecutor(4, backend="local") as made:
        yield made


@task(cpu=2, memory_mb=100, pool="/ml")
def double(value: int) -> int:
    """Return twice the value."""
    return 2 * value


def test_futures_are_those_of_the_standard_library(executor: PelotonExecutor) -> None:
    gate = threading.Event()
    quick, slow = executor.submit(pow, 2, 3), executor.submit(gate.wait)
    done, rest = concurrent.futures.wait(
        [quick, slow], timeout=WITHIN_S, return_when=concurrent.futures.FIRST_COMPLETED
    )
    assert (done, rest) == ({quick}, {slow})
    gate.set()
    assert {*concurrent.futures.as_completed([quick, slow], timeout=WITHIN_S)} == {quick, slow}

    async def wrapped() -> int:
        return await asyncio.wrap_future(executor.submit(pow, 2, 4))

    assert asyncio.run(wrapped()) == 16


def test_an_array_has_at_most_so_many_at_a_time(executor: PelotonExecutor) -> None:
    lock, both, state = threading.Lock(), threading.Barrier(2, timeout=WITHIN_S), {"now": 0}
    most = []

    def one(number: int) -> int:
        with lock:
            state["now"] += 1
            most.append(state["now"])
        both.wait()  # there are two at a time, or the barrier breaks
        with lock:
            state["now"] -= 1
        return number

    futures = executor.map_array(one, range(10), max_parallel=2)
    assert [future.result(WITHIN_S) for future in futures] == [*range(10)]
    assert max(most) == 2
    with pytest.raises(BadSpec, match="max_parallel: must be at least 1, got 0"):
        executor.map_array(one, range(10), max_parallel=0)


def test_a_call_that_is_cancelled_lets_another_of_its_array_come(executor: PelotonExecutor) -> None:
    gate = threading.Event()
    first, second, third = executor.map_array(
        lambda number: gate.wait(WITHIN_S) and number, range(3), max_parallel=1
    )
    assert second.cancel()
    gate.set()
    assert (first.result(WITHIN_S), third.result(WITHIN_S)) == (0, 2)


def test_a_batch_begins_at_its_end(executor: PelotonExecutor) -> None:
    with executor.batch():
        first = executor.submit(pow, 2, 3)
        assert not first.done() and not first.running()
        rest = executor.map_array(pow, [1, 2], [3, 4])
        with pytest.raises(RuntimeError, match="inside of a batch"), executor.batch():
            pass
    assert [one.result(WITHIN_S) for one in (first, *rest)] == [8, 1, 16]
    with pytest.raises(KeyError), executor.batch():
        dropped = executor.submit(pow, 2, 3)
        raise KeyError
    assert dropped.cancelled()


def test_a_chunk_of_calls_is_one_call(executor: PelotonExecutor) -> None:
    found = executor.map(pow, range(7), [2] * 9, chunksize=3)
    assert [*found] == [0, 1, 4, 9, 16, 25, 36]
    with pytest.raises(ValueError, match="chunksize must be >= 1"):
        executor.map(pow, [1], [2], chunksize=0)


def test_an_executor_that_has_ended_is_not_ended_again_at_the_exit() -> None:
    with PelotonExecutor(1, backend="local") as ended, PelotonExecutor(1, backend="local") as other:
        other.shutdown(wait=False)
        ended.shutdown()
        assert other in open_ones and ended not in open_ones


def test_where_a_call_is(executor: PelotonExecutor) -> None:
    gate = threading.Event()
    running = [executor.submit(gate.wait, WITHIN_S) for _ in range(4)]
    waiting: PelotonFuture[int] = executor.submit(pow, 2, 3)
    assert waiting.why() == ("waits for one of 4 threads of this process",)
    gate.set()
    assert waiting.result(WITHIN_S) == 8
    assert running[0].result(WITHIN_S)
    assert running[0].why() == ("the call has ended",)
    assert waiting.job == ""
    with pytest.raises(Unsupported, match="prints to where this process prints"):
        waiting.logs()


def test_a_task_is_a_plain_function_that_says_what_it_needs(executor: PelotonExecutor) -> None:
    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Return twice the value.")
    assert pickle.loads(pickle.dumps(double)) is double, "where it can be imported, by its name"

    @task(cpu=1)
    def inner() -> int:
        return 5

    assert pickle.loads(cloudpickle.dumps(inner))() == 5
    assert pickle.loads(cloudpickle.dumps(inner)).needs == inner.needs
    with pytest.raises(BadSpec, match="cpu: the task needs 2, workers of this executor have 0"):
        executor.submit(double, 4)
    with (
        PelotonExecutor(1, backend="local", cpu=4, memory_mb=200, pool="/ml") as fit,
        PelotonExecutor(1, backend="local", cpu=4, memory_mb=200) as elsewhere,
    ):
        assert fit.submit(double, 4).result(WITHIN_S) == 8
        with pytest.raises(BadSpec, match="pool: the task belongs to /ml, this executor to /def"):
            elsewhere.map_array(double, [4])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cpus": 1}, "cpus: no such option, there is cpu, "),
        ({"cpu": -1}, "cpu: must be ≥ 0, got -1"),
        ({"gpu": "one"}, "gpu: must be a number, got 'one'"),
        ({"idle_s": float("inf")}, "idle_s: must be ≥ 0, got inf"),
        ({"retries": 1.5}, "retries: must be a whole number, got 1.5"),
        ({"pool": "ml"}, "pool: must be a path such as /default, got 'ml'"),
        ({"python": "python3"}, "python: must be a list of words"),
        ({"backend": "slurm"}, "backend: there is remote, local, inproc, got 'slurm'"),
        ({"name": "mine"}, "name: threads end with their process"),
    ],
)
def test_an_option_that_is_wrong_is_named(options: dict[str, object], text: str) -> None:
    with pytest.raises(BadSpec) as raised:
        PelotonExecutor(1, **{"backend": "local", **options})  # type: ignore[arg-type]
    assert str(raised.value).startswith(text)


def test_the_backend_in_process_is_named_by_its_cluster() -> None:
    with pytest.raises(Unsupported, match="backend inproc: pass peloton.testing"):
        PelotonExecutor(1, backend="inproc")


def test_threads_end_with_an_executor_that_is_forgotten() -> None:
    executor = PelotonExecutor(1, backend="local")
    (thread,) = {executor.submit(threading.current_thread).result(WITHIN_S)}
    del executor
    thread.join(WITHIN_S)
    assert not thread.is_alive()


FORGETFUL = """
import threading
from peloton.sdk.executor import PelotonExecutor

gate = threading.Event()
PelotonExecutor(1, backend="local").submit(lambda: gate.wait() and print("finished"))
kept = PelotonExecutor(1, backend="local")
kept.submit(lambda: gate.wait() and print("finished"))
threading.Timer(0.1, gate.set).start()
"""


def test_a_program_that_ends_waits_for_its_calls() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=WITHIN_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "finished" in done.stdout


def test_a_worker_begins_without_what_it_does_not_need() -> None:
    program = (
        "import sys, peloton.sdk.executor.worker; "
        "print([name for name in ('grpc', 'numpy', 'msgspec', 'click') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=WITHIN_S
    )
    assert done.stdout == "[]\n", done.stderr


def test_settings_are_options_again() -> None:
    settings = WorkerSettings.of({"cpu": 2.0, "env": {"A": "b"}, "python": ["env", "python3"]})
    assert WorkerSettings.of(settings.as_options()) == settings


# ---- the queue ----


def calls(count: int) -> list[ExecutorCall]:
    made = functools.partial(ExecutorCall, work=None)
    return [made(number, future=concurrent.futures.Future()) for number in range(count)]


def test_a_suspect_is_given_to_a_worker_without_others() -> None:
    queue, (first, suspect, last) = CallQueue(), calls(3)
    queue.add([first, suspect, last])
    assert queue.take(3) == [first, suspect, last]
    suspect.is_alone = True
    queue.give_back([first, suspect, last])
    assert queue.take(3, wait_s=0) == [first], "not behind another one"
    assert queue.take(3, held=1, wait_s=0) == [], "nor for a worker that has one"
    assert queue.take(3, wait_s=0) == [suspect]
    assert queue.take(3, wait_s=0) == [last]


def test_workers_are_missing_for_calls_that_may_run() -> None:
    queue = CallQueue()
    queue.add(calls(3))
    assert queue.missing(0, most=2) == 2
    assert queue.missing(1, most=8) == 2
    assert queue.missing(3, most=8) == 0
    assert queue.missing(9, most=8) == 0


def test_calls_that_wait_fail_together_but_not_those_that_were_cancelled() -> None:
    queue, (first, second, running) = CallQueue(), calls(3)
    queue.add([running])
    assert queue.take(1) == [running]
    queue.add([first, second])
    second.future.cancel()
    queue.fail(ValueError("none can begin"))
    assert isinstance(first.future.exception(), ValueError)
    assert second.future.cancelled() and running.future.running()
    queue.finished([running])
    assert queue.wait_finished(0)


def test_a_closed_queue_ends_workers_once_all_is_finished() -> None:
    queue, (one, other) = CallQueue(), calls(2)
    queue.add([one, other])
    assert queue.take(1) == [one]
    queue.give_back([one])  # its worker was preempted
    assert queue.close(cancel=True) == [other], "only what nobody has begun can be cancelled"
    assert queue.take(1) == [one]
    assert queue.take(1, wait_s=0) == [], "a call may come back yet"
    queue.finished([one])
    assert queue.take(1) is None
    with pytest.raises(RuntimeError, match="after shutdown"):
        queue.add(calls(1))
