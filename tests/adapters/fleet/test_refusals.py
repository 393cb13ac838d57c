"""Clients of several daemons of which one refuses them: it may know users of an earlier time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from peloton.sdk.client import Client
from peloton.sdk.credentials import Credentials, Login
from peloton.sdk.errors import Denied, ServiceUnavailable
from tests.adapters.test_client_access import at, running, settings
from tests.cli.terminal import typed
from tests.gateway.access.test_authentication import USERS
from tests.servers.process import free_ports

OLD, NEW = "the-password-of-monday", "the-password-of-tuesday"
KNOWN = Credentials(login=Login("ann", NEW))


@contextlib.contextmanager
def daemon_of(folder: Path, *, password: str = NEW, role: str = "all") -> Iterator[str]:
    """Where a daemon serves at which ann has this password and this role."""
    folder.mkdir()
    ann = {"username": "ann", "password": password, "role": role}
    boss = {"username": "boss", "password": "none", "role": "all"}
    text = yaml.safe_dump(USERS | {"users": [ann, boss], "internal_user": "boss"})
    (folder / "users.yaml").write_text(text)
    (folder / "users.yaml").chmod(0o600)
    with running(settings(folder, auth={"type": "BASIC", "file": "users.yaml"})) as daemon:
        yield at(daemon)


@pytest.mark.parametrize("before", [{"password": OLD}, {"role": "nothing"}])
def test_the_next_address_is_tried(tmp_path: Path, before: dict[str, str]) -> None:
    password = tmp_path / "password"
    password.write_text(f"{NEW}\n")
    password.chmod(0o600)
    with daemon_of(tmp_path / "one", **before) as one, daemon_of(tmp_path / "two") as two:
        with Client([one, two], credentials=KNOWN) as client:
            made = client.pools.create("/p", {"name": "p", "resources": []})
            assert made, "a change, too: whoever is refused has changed nothing"
            assert client.pools.lookup("/p")
            with contextlib.closing(client.ops.watch(pool="/p")) as stream:
                assert next(iter(stream)) is not None
        words = ("--username", "ann", "--password-file", str(password))
        assert typed("--api", f"{one},{two}", *words, "respool", "dump").code == 0
        with Client([one], credentials=KNOWN) as client, pytest.raises(Denied):
            client.jobs.query()


def test_where_all_refuse_or_are_away_the_refusal_counts(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with daemon_of(tmp_path / "one", password=OLD) as one:
        with Client([nobody, one], credentials=KNOWN) as client:
            with pytest.raises(Denied, match="invalid Username/Password") as refused:
                client.jobs.query()
            assert nobody in str(refused.value), "who might have known us is named"
        with (
            daemon_of(tmp_path / "two", password=OLD) as two,
            Client([one, two], credentials=KNOWN) as client,
            pytest.raises(Denied),
        ):
            client.jobs.query()
        with (
            daemon_of(tmp_path / "three") as three,
            Client([nobody, one, three], credentials=KNOWN) as client,
        ):
            assert client.jobs.query() is not None
    with Client([nobody], credentials=KNOWN) as client, pytest.raises(ServiceUnavailable):
        client.jobs.query()
