"""What a backend tells its keeper of the account of a run, and whose folders it opens for that."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.assembly.task_accounts import health_notes, root_note, task_accounts
from peloton.backends.process import ProcessBackend, TaskAccounts
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key
from peloton.settings.daemon import DaemonSettings, parse

ROOT = os.geteuid() == 0
ME = pwd.getpwuid(os.geteuid()).pw_name
OTHER = "nobody" if ROOT else "root"
"""Root may start tasks as it, others may not."""
PEOPLE = (one for one in pwd.getpwall() if 1000 <= one.pw_uid < 60000)
PERSON = next((one.pw_name for one in PEOPLE), "no-such-account")
HOST = Key("host/a")


@pytest.fixture
def ends(open_folder: Path, procs: Any) -> Iterator[Callable[..., Any]]:
    """Runs one spec on a backend with these accounts; its end."""
    backends: list[ProcessBackend] = []

    def run(accounts: TaskAccounts, **named: str) -> m.RunEnd:
        told: list[Any] = []
        backends.append(ProcessBackend(open_folder, ["a"]))
        backend = backends[-1]
        backend.accounts = accounts
        backend.start(lambda envelopes: told.extend(each.message for each in envelopes))
        run_id = f"r-{len(backends)}-1"
        spec = RunSpec(Resources(UNIT), "id -un", **named)
        order = m.StartRuns(HOST, len(backends), (m.StartRun(run_id, spec),))
        list(backend.receive([Envelope(backend.key, order)], 0.0))
        procs.until(lambda: any(isinstance(one, m.RunsEnded) for one in told), "the run ends")
        backend.close()
        (end,) = next(one for one in told if isinstance(one, m.RunsEnded)).ends
        return end

    yield run


def as_whom(folder: Path, run: str) -> str:
    return (folder / "runs" / run / "stdout").read_text().strip()


def test_user_caller_and_setting_reach_the_keeper(
    ends: Callable[..., Any], open_folder: Path
) -> None:
    """Root starts them as another account; others ignore a caller and refuse another user."""
    caller = PERSON if ROOT else OTHER
    cases = [({"user": OTHER}, ""), ({"caller": caller}, ""), ({}, OTHER), ({"user": ME}, OTHER)]
    found = []
    for number, (named, task_user) in enumerate(cases, 1):
        end = ends(TaskAccounts(task_user), **named)
        ran = end.outcome.exit_code == 0
        found.append(as_whom(open_folder, f"r-{number}-1") if ran else end.outcome.reason)
    refused = "account cannot be used"
    called = PERSON if PERSON != "no-such-account" else refused
    expected = [OTHER, called, OTHER, ME] if ROOT else [refused, ME, refused, ME]
    assert found == expected


def test_our_folders_above_are_opened_for_other_accounts_alone(
    ends: Callable[..., Any], passable: Path
) -> None:
    passable.chmod(0o700)
    accounts = TaskAccounts(above=(passable,))
    assert ends(accounts).outcome.exit_code == 0
    assert stat.S_IMODE(passable.stat().st_mode) == 0o700
    ended = ends(accounts, user=OTHER)
    assert (ended.outcome.exit_code == 0) is ROOT
    assert stat.S_IMODE(passable.stat().st_mode) == (0o711 if ROOT else 0o700)


def settings(within: Path, **process: Any) -> DaemonSettings:
    raw = {
        "cluster": "test",
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {"process": {"folder": "data/keeper", "hosts": [{"name": "a"}], **process}},
    }
    return parse(raw, within)


def test_the_data_folder_above_the_keepers_is_ours(tmp_path: Path) -> None:
    found = task_accounts(settings(tmp_path, task_user="ann"))
    assert found == TaskAccounts("ann", (tmp_path / "data",))
    assert task_accounts(settings(tmp_path, folder="elsewhere")) == TaskAccounts()


def test_root_without_an_account_for_tasks_says_so(tmp_path: Path) -> None:
    text = root_note(settings(tmp_path))
    assert text.startswith("tasks run as root, where") is ROOT
    assert ("backend.process.task_user names another account" in text) is ROOT
    assert len(health_notes(settings(tmp_path))) == ROOT
    for process in ({"task_user": "nobody"}, {"task_user": "root"}):
        assert root_note(settings(tmp_path, **process)) == ""
        assert health_notes(settings(tmp_path, **process)) == ()
