"""Which account a run gets, by what its request names and by the user of the keeper."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from peloton.backends.keeper import accounts
from peloton.backends.keeper.accounts import Account, Accounts, AccountUnusable, closed_above

ROOT = Account("root", 0, 0, (0,), "/root")
TOOR = Account("toor", 0, 0, (0,), "/root")
ANN = Account("ann", 1001, 1001, (1001, 27), "/home/ann")
BOB = Account("bob", 1002, 1002, (1002,), "/home/bob")
BACKUP = Account("backup", 34, 34, (34,), "/var/backups")
EDGE = Account("edge", 999, 999, (999,), "/")
NOBODY = Account("nobody", 65534, 65534, (65534,), "/nonexistent")
NFSNOBODY = Account("nfsnobody", 65534, 65534, (65534,), "/nonexistent")
KNOWN = {one.name: one for one in (ROOT, TOOR, ANN, BOB, BACKUP, EDGE, NOBODY, NFSNOBODY)}


def of(own_uid: int, **wanted: str) -> Account | None:
    return Accounts(own_uid, find=KNOWN.get, uid_min=1000).of(wanted)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, None),
        ({"user": "ann"}, ANN),
        ({"caller": "ann"}, ANN),
        ({"user": "ann", "caller": "ann"}, ANN),
        ({"task_user": "bob"}, BOB),
        ({"user": "ann", "task_user": "bob"}, ANN),
        ({"caller": "ann", "task_user": "bob"}, ANN),
        ({"user": "root"}, None),  # by order of the daemon's owner
        ({"user": "root", "task_user": "bob"}, None),
        ({"task_user": "root"}, None),
        ({"task_user": "nobody"}, NOBODY),
        ({"user": "nobody"}, NOBODY),
        ({"task_user": "backup"}, BACKUP),
    ],
)
def test_root_takes_the_user_then_the_caller_then_the_setting(
    wanted: dict[str, str], found: Account | None
) -> None:
    assert of(0, **wanted) == found


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"user": "eve"}, "cannot run as eve: this machine has no such account"),
        ({"caller": "eve", "task_user": "bob"}, "cannot run as eve: this machine has no such"),
        ({"task_user": "eve"}, "cannot run as eve: this machine has no such account"),
        ({"caller": "root"}, "cannot run as root: tasks of callers never run as root"),
        ({"caller": "root", "user": "root"}, "tasks of callers never run as root"),
        ({"caller": "toor", "task_user": "bob"}, "cannot run as toor: tasks of callers never"),
        ({"caller": "backup"}, r"cannot run as backup: user 34 is a system account \(below"),
        ({"caller": "edge", "task_user": "bob"}, "user 999 is a system account"),
        ({"caller": "nobody", "task_user": "nobody"}, "tasks of callers never run as nobody"),
        ({"caller": "nfsnobody"}, "tasks of callers never run as nobody"),
        ({"caller": "ann", "user": "root"}, "ann must not run tasks as root"),
        ({"caller": "ann", "user": "bob"}, "ann must not run tasks as bob"),
    ],
)
def test_what_root_cannot_use_is_refused_and_is_no_other_account(
    wanted: dict[str, str], text: str
) -> None:
    with pytest.raises(AccountUnusable, match=text):
        of(0, **wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"caller": "bob"},
        {"caller": "root"},
        {"caller": "eve"},
        {"user": "ann"},
        {"task_user": "ann"},
        {"user": "ann", "caller": "bob"},
    ],
)
def test_who_is_not_root_runs_all_as_itself(wanted: dict[str, str]) -> None:
    assert of(ANN.uid, **wanted) is None


@pytest.mark.parametrize("wanted", [{"user": "bob"}, {"user": "root"}, {"task_user": "bob"}])
def test_who_is_not_root_refuses_another_user(wanted: dict[str, str]) -> None:
    with pytest.raises(AccountUnusable, match=r"run as user 1001, as it is not root"):
        of(ANN.uid, **wanted)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("# UID_MIN 7\nSYS_UID_MIN 100\nUID_MIN\t\t 500 # old\n", 500),
        ("UID_MIN 2000\nUID_MAX 60000\n", 2000),
        ("UID_MIN many\n\n", 1000),
        (None, 1000),
    ],
)
def test_the_first_user_of_a_person_is_that_of_the_machine(
    tmp_path: Path, text: str | None, least: int
) -> None:
    if text is not None:
        (tmp_path / "defs").write_text(text)
    assert accounts.least_uid(str(tmp_path / "defs")) == least


def test_names_are_looked_up_as_names() -> None:
    """Not as numbers, and no text is too odd to be refused."""
    for name in ("0", "", "no such", "a\0b", "\ud800", "x" * 5000, "../x"):
        assert accounts.look_up(name) is None, name
    me = pwd.getpwuid(os.geteuid())
    found = accounts.look_up(me.pw_name)
    assert found is not None
    assert (found.uid, found.gid, found.home) == (me.pw_uid, me.pw_gid, me.pw_dir)
    assert found.gid in found.groups


def test_an_answer_is_kept_for_a_while_and_of_not_too_many() -> None:
    asked: list[str] = []
    now = [100.0]

    def find(name: str) -> Account | None:
        asked.append(name)
        return KNOWN.get(name)

    found = Accounts(0, find=find, clock=lambda: now[0])
    for _ in range(3):
        assert found.of({"user": "ann"}) == ANN
        with pytest.raises(AccountUnusable):
            found.of({"user": "eve"})
    assert asked == ["ann", "eve"]
    now[0] += accounts.KEPT_S
    assert found.of({"user": "ann"}) == ANN
    assert asked == ["ann", "eve", "ann"]
    for number in range(2 * accounts.KEPT_MAX):
        with pytest.raises(AccountUnusable):
            found.of({"user": f"u{number}"})
    assert len(found._kept) <= accounts.KEPT_MAX


@pytest.mark.parametrize(
    ("mode", "account", "passes"),
    [
        (0o700, BOB, False),
        (0o711, BOB, True),
        (0o770, BOB, False),
        (0o701, BOB, True),
        (0o750, BOB._replace(groups=(1002, os.getegid())), True),
        (0o701, BOB._replace(groups=(1002, os.getegid())), False),
        (0o611, BOB._replace(uid=os.geteuid()), False),
        (0o711, BOB._replace(uid=os.geteuid()), True),
    ],
)
def test_a_folder_that_the_account_may_not_pass_is_named(
    passable: Path, mode: int, account: Account, passes: bool
) -> None:
    inner = passable / "closed" / "inner"
    inner.mkdir(parents=True, mode=0o755)
    (passable / "closed").chmod(mode)
    closed = closed_above(str(passable / "closed"), account)
    (passable / "closed").chmod(0o755)
    assert closed == ("" if passes else f"{passable / 'closed'} (mode {mode:04o})")
