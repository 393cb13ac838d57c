"""Jobs that have left memory: what clients are answered about them, until they are deleted."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from peloton.actors.job.messages import JobSummary
from peloton.actors.job.stages import JobStates
from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import Label
from peloton.api.v0.query import query_pb2
from peloton.api.v0.task import task_pb2
from peloton.assembly.kinds import ArchivePolicy, kinds
from peloton.gateway.v0 import archived_jobs
from peloton.ops.v1 import ops_pb2
from peloton.runtime.core.reading.listing import SCAN_MAX, Listed, ListViews, SortOrder
from peloton.runtime.vocabulary import Key
from tests.gateway import fleet_fixture as t
from tests.gateway.fleet_fixture import named

ENDED = (job_pb2.SUCCEEDED, job_pb2.FAILED, job_pb2.KILLED)
JOBS = 6


@pytest.fixture(scope="module")
def deployment(folder: Path) -> Iterator[t.Deployment]:
    """Finished jobs leave memory at once, and are never deleted."""
    policy = ArchivePolicy(forget_after_s=float("inf"), finished_jobs_max=0)
    with t.running(folder, of_kinds=kinds(t.SIZES, policy=policy)) as found:
        yield found


@pytest.fixture(scope="module")
def ids(deployment: t.Deployment) -> list[str]:
    """Jobs that are in the archive and not in memory, the oldest first."""
    made = [
        deployment.create(
            deployment.request(
                2,
                name=f"job-{number}",
                labels=[Label(key="parity", value=str(number % 2))],
                description=f"number {number}",
            )
        )
        for number in range(JOBS)
    ]
    for job_id in made:
        deployment.ended(job_id)
    deployment.until(lambda: len(query(deployment, ENDED)) == JOBS and not listed(deployment))
    return made


def listed(deployment: t.Deployment) -> list[str]:
    """The jobs in memory: a query without states or times is for them."""
    return query(deployment, ())


def query(deployment: t.Deployment, states: tuple[int, ...], **spec: object) -> list[str]:
    return [found.id.value for found in answer(deployment, states, **spec).results]


def answer(
    deployment: t.Deployment, states: tuple[int, ...], **spec: object
) -> job_pb2.QueryResponse:
    sent = job_pb2.QuerySpec(jobStates=states, **spec)
    found = deployment.jobs.Query(job_pb2.QueryRequest(spec=sent, summaryOnly=True))
    assert not found.HasField("error"), found
    return found


def metric(deployment: t.Deployment, name: str) -> float:
    with urlopen(f"http://{deployment.http}/metrics") as page:
        lines = page.read().decode().splitlines()
    (found,) = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
    return float(found)


def test_they_are_listed_by_their_states_newest_first(
    deployment: t.Deployment, ids: list[str]
) -> None:
    found = answer(deployment, ENDED)
    assert [line.id.value for line in found.results] == ids[::-1]
    assert found.pagination.total == JOBS
    assert {line.runtime.state for line in found.results} == {job_pb2.SUCCEEDED}


def test_they_are_not_among_jobs_that_run(deployment: t.Deployment, ids: list[str]) -> None:
    assert query(deployment, (job_pb2.RUNNING,)) == []


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"name": "job-3"}, [3]),
        ({"labels": [Label(key="parity", value="1")]}, [5, 3, 1]),
        ({"keywords": ["number 4"]}, [4]),
        ({"keywords": ["job-?"]}, [5, 4, 3, 2, 1, 0]),
        ({"keywords": ["nothing of it"]}, []),
        ({"owner": "somebody"}, []),
        ({"pagination": query_pb2.PaginationSpec(offset=2, limit=2)}, [3, 2]),
        (
            {
                "pagination": query_pb2.PaginationSpec(
                    orderBy=[
                        query_pb2.OrderBy(
                            property=query_pb2.PropertyPath(value="name"),
                            order=query_pb2.OrderBy.ASC,
                        )
                    ]
                )
            },
            [0, 1, 2, 3, 4, 5],
        ),
    ],
)
def test_each_part_of_a_query_holds_for_them(
    deployment: t.Deployment, ids: list[str], spec: dict[str, object], wanted: list[int]
) -> None:
    assert query(deployment, ENDED, **spec) == [ids[number] for number in wanted]


def test_times_alone_reach_into_the_archive(deployment: t.Deployment, ids: list[str]) -> None:
    spec = job_pb2.QuerySpec()
    spec.completionTimeRange.min.FromSeconds(int(time.time()) - 3600)
    found = deployment.jobs.Query(job_pb2.QueryRequest(spec=spec, summaryOnly=True))
    assert [line.id.value for line in found.results] == ids[::-1]
    spec.completionTimeRange.max.FromSeconds(int(time.time()) - 1800)
    assert not deployment.jobs.Query(job_pb2.QueryRequest(spec=spec)).results


def test_too_many_to_examine_are_refused_and_never_left_out(
    deployment: t.Deployment, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archived_jobs, "EXAMINED_MAX", JOBS - 1)
    spec = job_pb2.QuerySpec(jobStates=ENDED)
    found = deployment.jobs.Query(job_pb2.QueryRequest(spec=spec, summaryOnly=True))
    assert "narrower times" in found.error.err.message


def test_a_page_that_needs_too_many_at_a_time_is_refused(
    deployment: t.Deployment, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archived_jobs, "HELD_MAX", JOBS - 1)
    few = query_pb2.PaginationSpec(offset=1, limit=JOBS - 2)
    assert query(deployment, ENDED, pagination=few) == ids[::-1][1 : JOBS - 1]
    sent = job_pb2.QuerySpec(jobStates=ENDED, pagination=query_pb2.PaginationSpec(limit=JOBS))
    found = deployment.jobs.Query(job_pb2.QueryRequest(spec=sent, summaryOnly=True))
    assert "up to the end of the page" in found.error.err.message


def line(name: str) -> JobSummary:
    times = 1.0, 2.0, 3.0, 3.0
    pool = Key("pool/p"), "/p"
    return JobSummary(
        Key(f"job/{name}"), name, "", JobStates.SUCCEEDED, 1, *pool, *times, (), "BATCH", ()
    )


def test_no_more_is_kept_than_the_answer_needs(
    deployment: t.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hundred thousand matches that are read, in pages."""

    class Nowhere:
        """A cluster with none of them in memory."""

        def listing(self, query: ListViews, context: object) -> Listed:
            return Listed(query.kind, (), 0)

    client: Any = Nowhere()
    sent = ListViews("job", (), (SortOrder("name"),), 10, enough=100)
    wanted = archived_jobs._Wanted(client, sent, found=Listed("job", (), 0), context=client)
    pages, size, most = 100, 1000, 0
    for page in range(pages):
        names = (f"{page * size + number:06d}" for number in range(size))
        wanted.add(line(name) for name in names)
        most = max(most, len(wanted._waiting) + len(wanted._best._items))
    found = wanted.listed()
    assert (found.matched, len(found.items)) == (pages * size, 10)
    assert most <= archived_jobs.CHECKED_AT_ONCE + 2 * (sent.limit + SCAN_MAX)


@pytest.mark.parametrize("at_once", [1, 2, 1000])
@pytest.mark.parametrize("order", ["name", "creation_time"])
def test_what_is_counted_in_parts_is_the_same(
    deployment: t.Deployment,
    ids: list[str],
    at_once: int,
    order: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archived_jobs, "CHECKED_AT_ONCE", at_once)
    monkeypatch.setattr(archived_jobs, "JOBS_PER_READ", 1)
    by = query_pb2.OrderBy(
        property=query_pb2.PropertyPath(value=order), order=query_pb2.OrderBy.DESC
    )
    for limit in (1, JOBS - 1, JOBS + 1):
        pages = query_pb2.PaginationSpec(limit=limit, orderBy=[by])
        found = answer(deployment, ENDED, pagination=pages)
        assert [line.id.value for line in found.results] == ids[::-1][:limit]
        assert found.pagination.total == JOBS


def test_all_about_one_is_answered(deployment: t.Deployment, ids: list[str]) -> None:
    assert deployment.job(ids[0]).runtime.state == job_pb2.SUCCEEDED
    assert deployment.task(ids[0], 1).result.runtime.state == task_pb2.SUCCEEDED
    tasks = deployment.tasks.List(task_pb2.ListRequest(jobId=named(ids[0])))
    assert len(tasks.result.value) == 2
    assert len(deployment.tasks.Query(task_pb2.QueryRequest(jobId=named(ids[0]))).records) == 2
    events = deployment.tasks.GetPodEvents(
        task_pb2.GetPodEventsRequest(jobId=named(ids[0]), instanceId=0)
    )
    assert events.result
    assert not listed(deployment), "to read them has not put them back"


def test_the_archive_is_counted(deployment: t.Deployment, ids: list[str]) -> None:
    assert metric(deployment, "peloton_jobs_archived") == JOBS
    assert metric(deployment, "peloton_jobs_forgotten_total") == 0
    assert metric(deployment, "peloton_archive_late_seconds") == 0


def test_a_job_that_is_deleted_leaves_the_archive(deployment: t.Deployment, ids: list[str]) -> None:
    extra = deployment.create(deployment.request(name="extra"))
    deployment.ended(extra)
    deployment.until(lambda: query(deployment, ENDED, name="extra") == [extra])
    deployment.until(lambda: not listed(deployment))
    deployment.jobs.Delete(job_pb2.DeleteRequest(id=named(extra)))
    deployment.until(lambda: query(deployment, ENDED, name="extra") == [])
    assert query(deployment, ENDED) == ids[::-1]
    deployment.until(lambda: metric(deployment, "peloton_jobs_archived") == JOBS)


def test_a_row_that_cannot_be_read_is_named_by_every_call_that_meets_it(
    deployment: t.Deployment, ids: list[str], folder: Path
) -> None:
    """At once, as data that are lost, whoever else calls; the job is back once the row is."""
    job_id, set_body = ids[2], "UPDATE ended SET body = ? WHERE key = ?"
    key = f"job/{job_id}"
    with contextlib.closing(sqlite3.connect(folder / "journal.db", timeout=60)) as journal:
        ((body,),) = journal.execute("SELECT body FROM ended WHERE key = ?", (key,)).fetchall()
        with journal:
            journal.execute(set_body, (body[: len(body) // 2], key))
        of, ops = named(job_id), deployment.ops
        reads: list[tuple[Any, Any]] = [
            (deployment.jobs.Get, job_pb2.GetRequest(id=of)),
            (deployment.tasks.Get, task_pb2.GetRequest(jobId=of)),
            (deployment.tasks.List, task_pb2.ListRequest(jobId=of)),
            (deployment.tasks.GetPodEvents, task_pb2.GetPodEventsRequest(jobId=of)),
            (deployment.tasks.Stop, task_pb2.StopRequest(jobId=of)),
            (deployment.jobs.Delete, job_pb2.DeleteRequest(id=of)),
            (ops.Why, ops_pb2.WhyRequest(job_id=job_id)),
            (ops.WaitJob, ops_pb2.WaitJobRequest(job_id=job_id)),
        ]
        for call, sent in reads:
            code, text = t.refused(call, sent)
            assert code == grpc.StatusCode.DATA_LOSS, (sent, text)
            assert text == f"{key} cannot be read: DecodeError: Input data was truncated"
        assert job_id in query(deployment, ENDED), "a listing reads no rows of jobs"
        with journal:
            journal.execute(set_body, (body, key))
    assert deployment.job(job_id).runtime.state == job_pb2.SUCCEEDED
