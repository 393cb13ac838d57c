"""A full disk: nothing is acknowledged, `/ready` says why, and work goes on when there is room."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest

from peloton.runtime.adapters.sqlite_store import SqliteJournal
from tests.gateway.fleet_fixture import Deployment, running

PAGES = 300
JOBS_MAX = 400
UNCLEAR = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def ready(deployment: Deployment) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{deployment.http}/ready", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db", page_count_max=PAGES)
    with running(tmp_path, journal) as deployment:
        request = deployment.request(1)
        request.config.defaultConfig.command.value = "#" * 20_000
        made, code, why = [], 200, ""
        for _ in range(JOBS_MAX):
            try:
                made.append(deployment.create(request, timeout=3))
            except grpc.RpcError as error:
                assert isinstance(error, grpc.Call) and error.code() in UNCLEAR
                code, why = ready(deployment)
                # A disk that is busy for seconds is not full, and nothing says so.
                if code == 503:
                    break
        assert made
        assert code == 503
        assert "full" in why
        # It is known, so nobody waits for a commit that cannot be: the refusal is at once.
        with pytest.raises(grpc.RpcError) as refused:
            deployment.create(request, timeout=60)
        assert isinstance(refused.value, grpc.Call)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert deployment.job(made[-1]), "what is there can be read"
        journal.page_count_max = None  # somebody made room
        deployment.until(lambda: ready(deployment)[0] == 200)
        for job in made:
            assert deployment.ended(job).state == "SUCCEEDED"
        assert deployment.ended(deployment.create(request)).state == "SUCCEEDED"
