"""What queries cost with very many jobs, beside an empty echo call in the same run.

    script/bench queries                                     about two minutes
    script/bench queries --jobs 100000 --calls 100

The server is the gateway over the views of shards that a daemon would have, a process of its own
without tasks (`bench/parts/listed.py`); this process is the client, and the echo a third one.
CPU is of the server's process for each call. An answer with another number of jobs than there are
ends the run. It must not gate a test, and what it prints can be compared within one run only.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.api import JOBS, Load, Server, empty  # noqa: E402
from bench.parts.listed import MODELS, TEAMS, job_id  # noqa: E402
from bench.parts.measure import machine, quantile  # noqa: E402
from bench.parts.process import ROOT  # noqa: E402
from peloton.api.v0 import peloton_pb2  # noqa: E402
from peloton.api.v0.job import job_pb2  # noqa: E402

FETCHED, PAGE = 100, 10
SLOW_CALLS = 10
"""A query that looks at all jobs is sent so many times fewer."""


def get(count: int, calls: int) -> Load:
    """Get of many jobs by turns."""

    def request(number: int) -> bytes:
        wanted = job_pb2.GetRequest(id=peloton_pb2.JobID(value=job_id(number)))
        return bytes(wanted.SerializeToString())

    def check(answer: bytes) -> None:
        found = job_pb2.GetResponse.FromString(answer)
        if found.jobInfo.config.instanceCount != 100:
            raise SystemExit(f"Get: {found}")

    requests = [request(number) for number in range(min(count, 100))]
    return Load(f"{JOBS}/Get", [*itertools.islice(itertools.cycle(requests), calls)], check)


def query(calls: int, total: int, **spec: Any) -> Load:
    """A page of ten; `total` is how many jobs match."""
    asked = job_pb2.QueryRequest(spec=job_pb2.QuerySpec(**spec), summaryOnly=True)

    def check(answer: bytes) -> None:
        found = job_pb2.QueryResponse.FromString(answer)
        wanted = min(total, FETCHED), min(total, PAGE)
        if (found.pagination.total, len(found.results)) != wanted:
            raise SystemExit(
                f"Query {spec}: {found.pagination}, {len(found.results)}: not {wanted}"
            )

    return Load(f"{JOBS}/Query", [asked.SerializeToString()] * calls, check)


def loads(jobs: int, calls: int) -> dict[str, Load]:
    """What is measured."""

    def every(step: int, first: int = 0) -> int:
        return len(range(first, jobs, step))

    slow = calls // SLOW_CALLS if jobs > 1000 else calls
    label = {"key": "team", "value": "team-7"}
    nobody = {"key": "team", "value": "nobody"}
    by_name = {"orderBy": [{"property": {"value": "name"}}]}
    last = f"nightly-{jobs - 1}"
    return {
        "Get": get(jobs, calls),
        "Query, newest": query(calls, jobs),
        "state RUNNING": query(calls, every(4, 1), jobStates=[job_pb2.RUNNING]),
        "label of every 50th": query(slow, every(TEAMS, 7), labels=[label]),
        "label of none": query(slow, 0, labels=[nobody]),
        "name of the oldest": query(slow, 1, name=last),
        "keyword of every 1000th": query(slow, every(MODELS, 77), keywords=["RESNET-77 "]),
        "keyword of none": query(slow, 0, keywords=["nothing"]),
        "pattern of one": query(slow, 1, keywords=[f"n?ghtly-{jobs - 1}"]),
        "ordered by name": query(slow, jobs, pagination=by_name),
    }


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Start the servers one after the other, and load each."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peloton-bench-")))
        yield from machine(folder)
        parts = ROOT / "bench" / "parts"
        echo = Server([str(parts / "echo.py")], name="echo", folder=ROOT, errors=folder / "echo")
        stack.enter_context(contextlib.closing(echo))
        for jobs in chosen.jobs:
            words = [str(parts / "listed.py"), str(jobs)]
            server = Server(words, name=f"{jobs} jobs", folder=ROOT, errors=folder / "log")
            with contextlib.closing(server):
                for name, load in loads(jobs, chosen.calls).items():
                    server.run(load._replace(requests=load.requests[:1]), threads=1)  # columns
                    yield from _measured(f"{jobs} jobs: {name}", load, server, echo, chosen)


def _measured(
    case: str, load: Load, server: Server, echo: Server, chosen: argparse.Namespace
) -> Iterator[str]:
    ran = server.run(load, threads=chosen.threads)
    yield f"{case:<38} {ran.line()}"
    same = empty(load.requests[0], ran.answers[0], len(load.requests))
    empties = echo.run(same, threads=chosen.threads)
    p99 = [1e3 * quantile(one.call_s, 0.99) for one in (ran, empties)]
    yield f"{'  echo':<38} {empties.line()}   (p99 {p99[0]:.1f} beside {p99[1]:.1f} ms)"


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--calls", type=int, default=1000, help="of each kind; a tenth where all jobs are read")
    add("--jobs", type=int, nargs="+", default=[100, 10_000, 100_000])
    add("--threads", type=int, default=4)
    return parser.parse_args(args)


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
