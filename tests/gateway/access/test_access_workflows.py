"""A service that a caller may not see is answered as none, also if the version is right."""

from __future__ import annotations

from pathlib import Path

from peloton.gateway.access.access_table import SERVICES, UPDATES
from tests.gateway.access.test_access_cells import CODE, REQUESTS, Objects
from tests.gateway.access_fixture import ROLES, guarded

VERSIONED = (
    "StartJob", "StopJob", "DeleteJob", "ReplaceJob", "PatchJob", "RestartJob",
    "PauseJobWorkflow", "ResumeJobWorkflow", "AbortJobWorkflow", "GetReplaceJobDiff",
)  # fmt: skip
OF_UPDATES = ("PauseUpdate", "ResumeUpdate", "AbortUpdate", "RollbackUpdate")


def test_services_that_may_not_be_seen_do_not_exist(tmp_path: Path) -> None:
    with guarded(tmp_path) as fleet:
        objects, by = Objects(fleet), ROLES["stranger"]
        methods = [f"{SERVICES}.{name}" for name in VERSIONED]
        methods += [f"{UPDATES}.{name}" for name in OF_UPDATES]
        for method in methods:
            for relation in ("other pool", "unknown"):
                sent = REQUESTS[method](objects, relation, by)
                if method.startswith(SERVICES):
                    sent.version.value = "1-1-1"
                before = fleet.digest()
                code, text, _ = fleet.call(method, sent, by)
                assert (code, text) == (CODE.NOT_FOUND, "job not found"), method
                assert fleet.digest() == before
