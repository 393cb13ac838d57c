"""Secrets of one call: what a refusal takes back, and what it must leave."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from peloton.api.v0 import peloton_pb2 as v0
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.v0.job_secrets import SecretsOfCall
from peloton.runtime.adapters.secret_sealing import AesSealing
from peloton.runtime.adapters.sqlite_secrets import SqliteSecrets
from peloton.runtime.shells.secret_vault import SecretVault

SENT = [v0.Secret(path="token", value={"data": base64.b64encode(b"a value")})]


def created(vault: SecretVault, request: Any) -> tuple[SecretsOfCall, str]:
    """The secrets of a create, stored, and the id of the only one."""
    client: Any = SimpleNamespace(secrets=vault)
    context: Any = None
    call = SecretsOfCall(client, context)
    (ref,) = call.for_new_job(SENT, job.JobConfig(), job_id="j", request=request)
    call.store()
    return call, ref.id


def test_a_refused_repeat_leaves_the_values_of_the_job_that_the_first_copy_made(
    tmp_path: Path,
) -> None:
    """Its key was forgotten meanwhile, so it is told that there is such a job."""
    vault = SecretVault(SqliteSecrets(tmp_path / "secrets"), AesSealing([b"k" * 32]))
    _, first = created(vault, ("key", b"digest"))
    again, second = created(vault, ("key", b"digest"))
    assert first == second
    again.withdraw()
    assert vault.read("j", [first]) == {first: b"a value"}


def test_a_refused_request_without_a_key_leaves_nothing(tmp_path: Path) -> None:
    vault = SecretVault(SqliteSecrets(tmp_path / "secrets"), AesSealing([b"k" * 32]))
    call, one = created(vault, None)
    call.withdraw()
    assert vault.read("j", [one]) == {}
