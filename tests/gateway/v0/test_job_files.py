"""Files that come with jobs: each job has its own, and who may name those of another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.backends.job_files import JobFileFolder
from peloton.gateway.cluster.requests import REQUEST_KEY
from peloton.gateway.grpc_server import ServerOptions
from tests.gateway.access.test_access_cells import Objects
from tests.gateway.access_fixture import JOBS, ROLES, create_request, guarded
from tests.gateway.fleet_fixture import Deployment, named, refused, running

CODE = grpc.StatusCode
NOBODY = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
FILES = {"script": b"#!/bin/sh\n", "7": b"echo 7"}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("fleet")
    options = ServerOptions(files=JobFileFolder(folder))
    with running(folder, options=options) as found:
        found.folder = folder / "files"  # type: ignore[attr-defined]
        yield found


def files_of(deployment: Deployment, job_id: str) -> dict[str, bytes]:
    folder: Path = deployment.folder / job_id  # type: ignore[attr-defined]
    return {one.name: one.read_bytes() for one in folder.iterdir()} if folder.is_dir() else {}


def with_files(deployment: Deployment, *, of: str = "", wanted_id: str = "") -> job.CreateRequest:
    request = deployment.request(1)
    if of:
        request.filesOf.value = of
    else:
        for name, data in FILES.items():
            request.files[name] = data
    if wanted_id:
        request.id.value = wanted_id
    return request


def test_nobody_gives_a_job_other_files(deployment: Deployment) -> None:
    first = deployment.create(with_files(deployment))
    plain = deployment.create(deployment.request(1))
    for known in (first, plain):
        again = with_files(deployment, wanted_id=known)
        again.files["script"] = b"another"
        assert deployment.jobs.Create(again).error.HasField("alreadyExists")
    assert (files_of(deployment, first), files_of(deployment, plain)) == (FILES, {})


def test_a_job_that_is_refused_leaves_no_files(deployment: Deployment) -> None:
    request = with_files(deployment, wanted_id="0" * 8 + "-0000-4000-8000-" + "0" * 12)
    request.config.labels.add(key="peloton.after", value=NOBODY)
    assert deployment.jobs.Create(request).HasField("error")
    assert files_of(deployment, request.id.value) == {}


def test_files_of_another_job_stay_when_that_one_is_gone(deployment: Deployment) -> None:
    first = deployment.create(with_files(deployment))
    metadata = ((REQUEST_KEY, "the same"),)
    request = with_files(deployment, of=first.upper())
    second = deployment.create(request, metadata=metadata)
    assert deployment.create(request, metadata=metadata) == second
    deployment.ended(first)
    deployment.jobs.Delete(job.DeleteRequest(id=named(first)))
    JobFileFolder(deployment.folder.parent).remove(first)  # type: ignore[attr-defined]
    third = deployment.create(with_files(deployment, of=second))
    assert files_of(deployment, second) == files_of(deployment, third) == FILES


@pytest.mark.parametrize(
    ("of", "code", "said"),
    [
        (NOBODY, CODE.NOT_FOUND, f"filesOf: there are no files of job {NOBODY}"),
        ("../other", CODE.INVALID_ARGUMENT, "filesOf: '../other' is not the id of a job"),
    ],
)
def test_files_that_are_not_there(
    deployment: Deployment, of: str, code: grpc.StatusCode, said: str
) -> None:
    found, text = refused(deployment.jobs.Create, with_files(deployment, of=of))
    assert found is code
    assert said in text


def test_files_of_a_job_that_the_caller_may_not_see(tmp_path: Path) -> None:
    files = JobFileFolder(tmp_path)
    with guarded(tmp_path, options=ServerOptions(files=files)) as fleet:
        hidden = Objects(fleet).job("other pool", ROLES["submitter"])
        files.put(hidden, FILES)
        sent = create_request(fleet.pools["/team/jobs"], name="curious")
        sent.filesOf.value = hidden
        code, text, _ = fleet.call(f"{JOBS}.Create", sent, ROLES["submitter"])
        said = f"filesOf: there are no files of job {hidden}, or no longer"
        assert (code, text) == (CODE.NOT_FOUND, said)
        assert fleet.call(f"{JOBS}.Create", sent, ROLES["administrator"])[0] == CODE.OK


def test_files_of_its_own_and_of_another_job(deployment: Deployment) -> None:
    request = with_files(deployment)
    request.filesOf.value = deployment.create(with_files(deployment))
    found = refused(deployment.jobs.Create, request)
    assert found == (CODE.INVALID_ARGUMENT, "filesOf: a job with files has none of another job")
