"""What type checkers know of both clients; `tests/house/test_tools.py` runs mypy over it."""

from __future__ import annotations

from typing import assert_type

from peloton.api.v0.job import job_pb2 as job
from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk import AsyncClient, Client
from peloton.sdk.ops import WaitResult


def blocking(peloton: Client) -> None:
    with peloton as entered:
        assert_type(entered, Client)
    assert_type(peloton.jobs.create("/a", {}, request_key="k"), job.CreateResponse)
    assert_type(peloton.pools.create("/a", {}), str)
    assert_type(peloton.ops.wait("a", timeout_s=1.0), WaitResult)
    for message in peloton.ops.watch(kinds=["job"]):
        assert_type(message, ops.WatchResponse)
    peloton.jobs.create("/a")  # type: ignore[call-arg]
    peloton.jobs.get(1)  # type: ignore[arg-type]


async def awaited(peloton: AsyncClient) -> None:
    async with peloton as entered:
        assert_type(entered, AsyncClient)
    assert_type(await peloton.jobs.create("/a", {}, request_key="k"), job.CreateResponse)
    assert_type(await peloton.pools.create("/a", {}), str)
    assert_type(await peloton.ops.wait("a", timeout_s=1.0), WaitResult)
    async for message in peloton.ops.watch(kinds=["job"]):
        assert_type(message, ops.WatchResponse)
    async for piece in peloton.tasks.logs("a", 0):
        assert_type(piece, bytes)
    await peloton.jobs.create("/a")  # type: ignore[call-arg]
    print((await peloton.jobs.get("a")).nothing)  # type: ignore[attr-defined]
