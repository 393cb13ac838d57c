"""The account of tasks that name none: its check, and the warning if they run as root.

Turns settings into texts for people. The keeper checks again at each run, because accounts come and
go.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from peloton.backends.keeper.accounts import Account, closed_above, look_up
from peloton.backends.process import TaskAccounts
from peloton.failures import CannotStart
from peloton.runtime.core.health import NotReadyReason
from peloton.settings.daemon import DaemonSettings
from peloton.settings.start_options import SettingNames

TASKS = "tasks"
SETTING = "backend.process.task_user"


def problem(settings: DaemonSettings, names: SettingNames) -> str:
    """Return why the account of the settings cannot be used; empty if it can, or none is named."""
    name = _task_user(settings)
    if not name:
        return ""
    found = look_up(name)
    if found is None:
        return f"{SETTING}: this machine has no account {name!r}"
    if os.geteuid() == found.uid:
        return ""
    if os.geteuid() != 0:
        return f"{SETTING}: only root can run tasks as another user, here {name}"
    return _closed(settings, names, account=found)


def _closed(settings: DaemonSettings, names: SettingNames, *, account: Account) -> str:
    """Return why the account cannot pass our own folders' parents: those are not ours to open."""
    assert settings.backend.process is not None
    ours = [*task_accounts(settings).above, settings.backend.process.folder]
    above = ours[0].resolve().parent
    while not above.exists():
        above = above.parent
    closed = closed_above(str(above), account)
    if not closed:
        return ""
    setting = names.data_folder if len(ours) > 1 else names.keeper_folder
    return f"{setting}: tasks of {account.name} must not pass {closed}; name another folder"


def check_accounts(
    settings: DaemonSettings, names: SettingNames, *, report: Callable[[str], object]
) -> None:
    """Raise CannotStart for a problem; report that tasks run as root."""
    text = problem(settings, names)
    if text:
        raise CannotStart(text)
    note = root_note(settings)
    if note:
        report(f"warning: {note}")


def root_note(settings: DaemonSettings) -> str:
    """Return a warning if tasks run as root though nobody has asked for it; else empty."""
    ours = settings.backend.process is not None and "hostmgr" in settings.roles
    if not ours or os.geteuid() != 0 or _task_user(settings):
        return ""
    return (
        "tasks run as root, where neither a user of their spec nor a proven caller is known: "
        f"{SETTING} names another account for them"
    )


def health_notes(settings: DaemonSettings) -> tuple[NotReadyReason, ...]:
    """Return the same for health; no reason against being ready."""
    text = root_note(settings)
    return (NotReadyReason(TASKS, text.removeprefix("tasks ")),) if text else ()


def task_accounts(settings: DaemonSettings) -> TaskAccounts:
    """Return the backend's settings of accounts."""
    process, sqlite = settings.backend.process, settings.journal.sqlite
    if process is None:
        return TaskAccounts()
    above = ()
    if sqlite is not None and sqlite.folder.resolve() in process.folder.resolve().parents:
        above = (sqlite.folder,)
    return TaskAccounts(process.task_user, above)


def _task_user(settings: DaemonSettings) -> str:
    process = settings.backend.process
    return process.task_user if process is not None else ""
