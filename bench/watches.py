"""What 10,000 watches of services cost: memory of the daemon, and how late a change arrives.

A daemon's gateway with simulated hosts, in a process of its own, has 100 services; watches of
single services, as many of each, come over 100 connections of another process. Then one instance
of every service begins a new run, round by round, and each message is compared with the time of its
change. It must not count a message twice.

    script/bench watches [--streams 10000] [--jobs 100] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.measure import cpu_s  # noqa: E402
from peloton.api.v0.job import job_pb2  # noqa: E402
from peloton.api.v0.task import task_pb2  # noqa: E402
from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as svc  # noqa: E402
from peloton.api.v1alpha.watch.svc import watch_svc_pb2_grpc  # noqa: E402
from peloton.gateway.grpc_server import ServerOptions  # noqa: E402
from tests.gateway import fleet_fixture  # noqa: E402

CHANNELS = 100
SETTLE_S = 3.0
AT_ONCE = 200
PACE_S = 0.1  # between changes: each is told to a hundred streams
OPEN_S_MAX = 60.0
INSTANCES = 2


def serve(jobs: int, pipe: Any) -> None:
    """The daemon: tells its address and the ids of its services, then obeys."""
    with (
        tempfile.TemporaryDirectory() as folder,
        fleet_fixture.running(Path(folder), options=ServerOptions(watches=16_384)) as deployment,
    ):
        config = fleet_fixture.default_config(36_000.0)
        config.resource.cpuLimit = 0.01
        made = []
        for number in range(jobs):
            request = deployment.request(INSTANCES, defaultConfig=config, name=f"s{number}")
            request.config.type = job_pb2.SERVICE
            made.append(deployment.create(request))
        pipe.send((deployment.api, made))
        while (job := pipe.recv()) is not None:
            sent = task_pb2.RestartRequest(jobId={"value": job}, ranges=[{"from": 0, "to": 1}])
            deployment.tasks.Restart(sent)
            pipe.send(time.time())


class Watching:
    """The streams, on a loop of their own."""

    def __init__(self, api: str, jobs: list[str], streams: int) -> None:
        self.delays: list[float] = []
        self.begun = 0
        self.ended: Counter[str] = Counter()
        self._seen: set[tuple[int, int]] = set()
        self._args = api, jobs, streams
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._loop = asyncio.new_event_loop()
        threading.Thread(
            target=self._loop.run_until_complete, args=(self._all(),), daemon=True
        ).start()

    async def _all(self) -> None:
        api, jobs, streams = self._args
        channels = [
            grpc.aio.insecure_channel(api, options=[("grpc.use_local_subchannel_pool", 1)])
            for _ in range(min(CHANNELS, streams))
        ]
        await asyncio.gather(
            *(
                self._until_the_end(
                    number, channels[number % len(channels)], jobs[number % len(jobs)]
                )
                for number in range(streams)
            )
        )

    async def _until_the_end(self, number: int, channel: Any, job: str) -> None:
        try:
            await self._one(number, channel, job)
        except grpc.aio.AioRpcError as error:
            self.ended[f"{error.code().name} {error.details()}"] += 1

    async def _one(self, number: int, channel: Any, job: str) -> None:
        stub = watch_svc_pb2_grpc.WatchServiceStub(channel)
        request = svc.WatchRequest(stateless_job_filter={"job_ids": [{"value": job}]})
        # gRPC drops calls of a server that has a thousand yet to take.
        async with self._gate:
            call = aiter(stub.Watch(request))
            await anext(call)
        self.begun += 1
        async for message in call:
            now_s = time.time()
            for one in message.stateless_jobs:
                at = one.status.revision.updated_at
                if (number, at) not in self._seen:
                    self._seen.add((number, at))
                    self.delays.append(now_s - at / 1e9)


def resident_mb(pid: int) -> float:
    """What a process has in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    server = context.Process(target=serve, args=(given.jobs, other), daemon=True)
    server.start()
    assert server.pid is not None
    api, jobs = pipe.recv()
    time.sleep(SETTLE_S)
    before_mb = resident_mb(server.pid)
    watching, since_s = Watching(api, jobs, given.streams), time.monotonic()
    while watching.begun < given.streams:
        time.sleep(0.1)
        if time.monotonic() - since_s > OPEN_S_MAX:
            print(watching.ended)
            print(f"only {watching.begun} streams began within {OPEN_S_MAX:g} s", flush=True)
            break
    open_s = time.monotonic() - since_s
    time.sleep(SETTLE_S)
    after_mb = resident_mb(server.pid)
    each_kb = (after_mb - before_mb) * 1024 / given.streams
    print(f"{given.streams} streams on {given.jobs} services: open in {open_s:.1f} s")
    print(f"memory {before_mb:.0f} -> {after_mb:.0f} MB, {each_kb:.1f} KB a stream")
    idle_s = cpu_s(server.pid)
    time.sleep(SETTLE_S)
    print(f"idle: {(cpu_s(server.pid) - idle_s) / SETTLE_S:.1%} of a core")
    for number in range(given.rounds):
        watching.delays.clear()
        used_s = cpu_s(server.pid)
        for job in jobs:
            pipe.send(job)
            pipe.recv()
            time.sleep(PACE_S)
        time.sleep(SETTLE_S)
        delays = sorted(watching.delays)
        if not delays:
            print(f"round {number}: nothing came")
            continue
        p99 = delays[int(len(delays) * 0.99)]
        print(
            f"round {number}: {len(delays)} messages, delay p50 "
            f"{statistics.median(delays) * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, max "
            f"{delays[-1] * 1000:.1f} ms, {cpu_s(server.pid) - used_s:.2f} s of CPU"
        )
    pipe.send(None)
    with contextlib.suppress(Exception):
        server.join(10)


if __name__ == "__main__":
    main()
