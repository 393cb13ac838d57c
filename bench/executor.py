"""What an executor of functions costs: `map` of no-ops on workers that are warm, beside others.

    script/bench executor                            about a minute
    script/bench executor --calls 2000 --rounds 2

Two worker processes each: ours on a minicluster with real processes, `ProcessPoolExecutor` of the
standard library, and Dask and Ray where they are installed (`pip install distributed ray`). By
rounds each takes its turn, so that what else the machine does meets all. A wrong result ends the
run. It must not gate a test, and what it prints can be compared within one run only.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.measure import cpu_of_tree_s, machine, ratio  # noqa: E402
from bench.parts.minicluster import Hosts, Minicluster  # noqa: E402
from peloton.sdk.client import Client  # noqa: E402
from peloton.sdk.executor import PelotonExecutor  # noqa: E402

OURS = "peloton map"
Mapped = Callable[[int], "list[int]"]
"""Maps `same` over so many numbers; returns the results."""


def same(number: int) -> int:
    return number


def submitted(executor: PelotonExecutor, count: int) -> list[int]:
    """One call at a time, all of them before the first result."""
    futures = [executor.submit(same, number) for number in range(count)]
    return [future.result() for future in futures]


@contextlib.contextmanager
def ours(cluster: Minicluster, workers: int) -> Iterator[dict[str, Mapped]]:
    try:
        with (
            Client(cluster.address) as client,
            PelotonExecutor(workers, client=client, cpu=1.0, memory_mb=500.0) as executor,
        ):
            yield {
                OURS: lambda count: list(executor.map(same, range(count))),
                "peloton, chunksize=100": lambda count: list(
                    executor.map(same, range(count), chunksize=100)
                ),
                "peloton submit": lambda count: submitted(executor, count),
            }
    finally:
        cluster.close()


@contextlib.contextmanager
def standard(workers: int) -> Iterator[dict[str, Mapped]]:
    # A fork of this process would have the locks of its threads.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield {
            "ProcessPoolExecutor map": lambda count: list(pool.map(same, range(count))),
            "the same, chunksize=100": lambda count: list(
                pool.map(same, range(count), chunksize=100)
            ),
        }


@contextlib.contextmanager
def dask(workers: int) -> Iterator[dict[str, Mapped]]:
    from distributed import Client as DaskClient
    from distributed import LocalCluster

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        DaskClient(cluster) as client,
    ):
        # pure=False: else it would answer from what it has.
        yield {"Dask map": lambda count: client.gather(client.map(same, range(count), pure=False))}


@contextlib.contextmanager
def ray(workers: int) -> Iterator[dict[str, Mapped]]:
    import ray as library

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    library.init(num_cpus=workers, include_dashboard=False, logging_level="ERROR")
    try:
        remote = library.remote(same)
        yield {
            "Ray remote": lambda count: library.get([remote.remote(one) for one in range(count)])
        }
    finally:
        library.shutdown()


def used_s(cluster: Minicluster | None) -> float:
    """CPU seconds of this process and its descendants, and of the keeper's, which is none."""
    keeper = cluster.keeper() if cluster is not None else 0
    return cpu_of_tree_s(os.getpid()) + (cpu_of_tree_s(keeper) if keeper else 0.0)


def rate(
    name: str, mapped: Mapped, *, count: int, cluster: Minicluster | None = None
) -> tuple[float, float]:
    """Calls a second, and milliseconds of CPU of all processes for each."""
    cpu_s, begun = used_s(cluster), time.perf_counter()
    found = mapped(count)
    took_s = time.perf_counter() - begun
    if found != [*range(count)]:
        raise SystemExit(f"{name}: {found[:10]} … is not what was asked for")
    return count / took_s, (used_s(cluster) - cpu_s) / count * 1e3


def options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME", help="dask, ray")
    return parser.parse_args(words)


def run(asked: argparse.Namespace) -> Iterator[str]:
    """The lines of the figures."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        yield from machine(Path(folder))
        cluster = Minicluster(Path(folder), Hosts(1, float(asked.workers)), backend="process")
        made = stack.enter_context(ours(cluster, asked.workers))
        made |= stack.enter_context(standard(asked.workers))
        for name, package, others in (("dask", "distributed", dask), ("ray", "ray", ray)):
            if name in asked.without or importlib.util.find_spec(package) is None:
                yield f"# without {name}: the package {package} is not installed, or not wanted"
            else:
                made |= stack.enter_context(others(asked.workers))
        for name, mapped in made.items():
            rate(name, mapped, count=min(asked.calls, 200))  # workers begin
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
        for _ in range(asked.rounds):
            for name, mapped in made.items():
                found[name].append(rate(name, mapped, count=asked.calls, cluster=cluster))
        mine = [calls for calls, _ in found[OURS]]
        for name, rounds in found.items():
            calls = [one for one, _ in rounds]
            cpu_ms = statistics.median(cpu for _, cpu in rounds)
            beside = ratio([*zip(mine, calls, strict=True)])
            yield (
                f"{name:<24} {statistics.median(calls):8,.0f} calls/s "
                f"({min(calls):,.0f} to {max(calls):,.0f}), cpu {cpu_ms:.3f} ms a call; "
                f"{OURS} / it {beside}"
            )


if __name__ == "__main__":
    for line in run(options(sys.argv[1:])):
        print(line, flush=True)
