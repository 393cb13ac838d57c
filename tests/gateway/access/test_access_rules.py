"""Permissions: what a file says, whom a rule means, what is inherited, and when a file is read."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.resources import Resources
from peloton.actors.respool.messages import ROOT, PoolConfig, PoolView
from peloton.actors.respool.planning import GivenBack
from peloton.actors.respool.pool_report import LotInLine, PoolReport
from peloton.gateway.access import permissions
from peloton.gateway.access.permissions import Permissions, Rights
from peloton.gateway.ops.plans import given_by
from peloton.gateway.ops.pool_reports import report_of
from peloton.runtime.core.principal import (
    BASIC,
    NONE,
    TLS,
    TOKEN,
    UNVERIFIED,
    Principal,
    principal_of,
)
from peloton.runtime.vocabulary import Key
from peloton.settings.config import BadSetting
from peloton.settings.permissions_file import PERMISSIONS, Permission, read_access

SEE, SUBMIT, STOP, ADMINISTER = (
    Permission.SEE, Permission.SUBMIT, Permission.STOP, Permission.ADMINISTER,
)  # fmt: skip
RULES = """\
pools:
  /: {administer: ["role:admin"], see: [bea]}
  /ml: {submit: [ann, "role:ml"], stop: [ann]}
  /ml/secret: {see: [zoe], submit: []}
  /open: {submit: ["*"]}
"""


def rights(rules: str, principal: Principal, folder: Path) -> Rights:
    file = folder / "rules.yaml"
    file.write_text(rules)
    return Rights(read_access(file), principal)


def user(name: str, how: str = BASIC, role: str = "") -> Principal:
    return Principal(name, how, role=role)


def allowed(found: Rights, path: str) -> set[str]:
    return {each for each in PERMISSIONS if found.may(Permission(each), path)}


@pytest.mark.parametrize(
    ("principal", "path", "wanted"),
    [
        (user("ann"), "/ml", "submit stop see"),  # stop includes see
        (user("ann"), "/ml/deep/er", "submit stop see"),
        (user("ann"), "/ml/secret", "stop see"),  # each permission is inherited by itself
        (user("bea"), "/ml", "see"),
        (user("bea"), "/ml/secret", ""),  # the nearest rule counts, not the union
        (user("zoe"), "/ml/secret/x", "see"),
        (user("ann"), "/mlops", ""),  # paths are compared part by part
        (user("ann"), "/", ""),
        (user("x", role="ml"), "/ml", "submit"),
        (user("x", role="admin"), "/ml/secret", " ".join(PERMISSIONS)),
        (user("", role="ml"), "/ml", "submit"),  # the anonymous user of a list has a role
        (user("ann", TLS), "/ml", "submit stop see"),
        (user("ann", TOKEN), "/ml", "submit stop see"),
        # Who only claims a name, or a role, is nobody.
        (user("ann", UNVERIFIED), "/ml", ""),
        (user("ann", UNVERIFIED, "admin"), "/ml", ""),
        (user("", NONE), "/open", "submit"),
        (user("stranger"), "/open/x", "submit"),
        # A name in the form of a rule is a name like others.
        (user("role:admin"), "/ml", ""),
        (user("role:ml", TLS), "/ml", ""),
        (user("*"), "/ml", ""),
        (user("Ann"), "/ml", ""),
        (user("ann "), "/ml", ""),
    ],
)
def test_whom_a_rule_means(principal: Principal, path: str, wanted: str, tmp_path: Path) -> None:
    assert allowed(rights(RULES, principal, tmp_path), path) == set(wanted.split())


def test_who_may_do_anything_in_a_pool_sees_it(tmp_path: Path) -> None:
    ml = rights(RULES, user("x", role="ml"), tmp_path)
    assert ml.sees_pool("/ml") and not ml.may(SEE, "/ml") and not ml.sees_pool("/ml/secret")


def test_of_who_would_give_back_jobs_are_named_to_those_who_may_see_them(tmp_path: Path) -> None:
    def told(who: Principal) -> tuple[str, str, int]:
        given = [GivenBack("/ml", "x", 2, Resources())]
        (one,) = given_by(given, rights(RULES, who, tmp_path))
        return one.pool, one.job, one.instances

    assert told(user("bea")) == ("/ml", "x", 2)
    assert told(user("zoe")) == ("", "", 2)
    assert told(user("y", role="ml")) == ("/ml", "", 2), "who submits sees no jobs of others"


def test_the_account_of_a_pool_names_jobs_to_those_who_may_see_them(tmp_path: Path) -> None:
    config = PoolConfig("ml", ROOT, Resources(), Resources())
    view = PoolView(Key("respool/ml"), "/ml", config, (), Resources(), Resources())
    line = LotInLine("x", 2, 0, Resources(), False, "job y holds all of it")
    found = PoolReport(view, None, (), [], [], [line], 2, [])

    def told(who: Principal) -> tuple[str, str, str, int]:
        text = "job y holds all of it"
        answer = report_of(found, rights=rights(RULES, who, tmp_path), text=text)
        (waits,) = answer.waiting
        return answer.text, waits.job, waits.text, waits.instances

    assert told(user("bea")) == ("job y holds all of it", "x", "job y holds all of it", 2)
    assert told(user("z", role="ml")) == ("", "", "", 2)


def test_a_job_is_its_creators_if_they_were_known(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    rules = read_access(file)

    def may(by: Principal, creator: Principal | str, permission: Permission = STOP) -> bool:
        text = creator if isinstance(creator, str) else creator.text
        return Rights(rules, by).may_with_job(permission, "/ml/secret", created_by=text)

    pat = Principal("pat", BASIC, "10.0.0.7", "peloton-python")
    assert may(pat, pat) and may(pat, pat, SEE) and may(user("pat", TLS), pat)
    assert not may(user("pat", UNVERIFIED), pat)
    assert not may(pat, user("pat", UNVERIFIED))
    assert not may(pat, "pat") and not may(pat, "") and not may(user("", BASIC), user("", BASIC))
    assert not may(user("pa"), pat) and not may(user("pat@10.0.0.7"), pat)
    strange = user("pat@10.0.0.7/x%")
    assert may(strange, strange) and not may(user("pat"), strange)
    # What is stored is cut: two long names must not pass for each other.
    long, longer = user("n" * 128), user("n" * 129)
    assert principal_of(longer.text).name == long.name
    assert not may(long, longer) and not may(longer, longer)


def test_a_listing_sees_what_a_single_look_sees(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from peloton.runtime.core.reading.listing import ListViews, matching

    names = ["ann", "bea", "zoe", "x", "role:ml"]
    people = [user(n, how, r) for n in names for how in (BASIC, UNVERIFIED) for r in ("", "ml")]
    paths = ["", "/", "/ml", "/ml/a", "/ml/secret", "/ml/secret/b", "/mlops", "/open", "/open/c"]
    lines = [
        SimpleNamespace(pool_path=path, created_by=creator.text)
        for path, creator in itertools.product(paths, people)
    ]
    for person in people:
        found = rights(RULES, person, tmp_path)
        listed = matching(ListViews("job", found.listing), lines)
        seen = [
            line
            for line in lines
            if found.may_with_job(SEE, line.pool_path or "/", created_by=line.created_by)
        ]
        assert listed == seen, person


MISTAKES = [
    ("", ["expected keys and values, found an empty file"]),
    ("[]", ["line 1: the file: expected keys and values, found a list"]),
    ("poools: {}", ["line 1: unknown field `poools`, did you mean `pools`?"]),
    (
        "pools:\n  /: {see: [a]}\n",
        [
            "line 1: pools./: missing required field `administer`: hosts, calls of operators and "
            "pools without a rule need somebody"
        ],
    ),
    (
        "pools:\n  /: {adminster: [a], x: []}\n",
        [
            "line 2: pools./: unknown permission `adminster`, did you mean `administer`?",
            "line 2: pools./: unknown permission `x`, there are submit, stop, see, administer",
        ],
    ),
    ("pools:\n  /ml/: {}\n", ["line 2: pools: '/ml/' is not the path of a pool: write `/ml`"]),
    ("pools:\n  ml: {}\n", ["line 2: pools: 'ml' is not the path of a pool: write `/ml`"]),
    ("pools:\n  /a:\n    see: ann\n", ["line 3: pools./a.see: expected a list, found 'ann'"]),
    (
        "pools:\n  /a:\n    see:\n      - 7\n      - b\n      - b\n      - ''\n      - 'role:'\n",
        [
            "line 4: pools./a.see[0]: expected a text, found '7'",
            "line 6: pools./a.see[2]: 'b' is given twice",
            "line 7: pools./a.see[3]: '' is not a name, role:ROLE or '*'",
            "line 8: pools./a.see[4]: 'role:' is not a name, role:ROLE or '*'",
        ],
    ),
    (
        f"pools:\n  /a: {{see: [{'n' * 128}]}}\n",
        ["line 2: pools./a.see[0]: 128 characters, the limit is 127"],
    ),
    ("pools:\n  /a: {}\n  /a: {}\n", ["line 3: pools: `/a` is given twice"]),
    ("pools:\n  /a: {see: [*x]}\n", ["line 2: not YAML: found undefined alias 'x'"]),
    ("pools: {", ["line 1: not YAML: expected the node content, but found '<stream end>'"]),
]


@pytest.mark.parametrize(("text", "wanted"), MISTAKES)
def test_every_mistake_of_a_file_is_named(text: str, wanted: list[str], tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(BadSetting) as caught:
        read_access(file)
    shown = [one.removeprefix(f"access.file: {file}: ") for one in caught.value.texts]
    if "not YAML" in wanted[0]:
        assert shown[0].startswith("line ") and "not YAML" in shown[0]
    else:
        assert shown == wanted


def test_an_entry_may_mean_a_name_with_one_proof_only(tmp_path: Path) -> None:
    text = "pools:\n  /: {administer: [root], see: ['basic:ann'], submit: ['tls:*', ann]}\n"
    for principal, wanted in (
        (user("ann"), {"see", "submit"}),
        (user("ann", TLS), {"submit"}),
        (user("ann", UNVERIFIED), set()),
        (user("basic:ann", TLS), set()),
        (user("basic:ann"), set()),
        (user("*", TLS), set()),
    ):
        assert allowed(rights(text, principal, tmp_path), "/x") == wanted, principal
    file, people = tmp_path / "rules.yaml", iter((user("ann"), user("ann", TLS)))
    found = Permissions(file, whose=lambda context: next(people))
    seen = [found.rights(None), found.rights(None)]
    assert [one is not None and one.may(SEE, "/x") for one in seen] == [True, False]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="access.file: .*: No such file or directory"):
        read_access(tmp_path / "none.yaml")
    large = tmp_path / "large.yaml"
    large.write_text("#" * (1024 * 1024 + 1))
    with pytest.raises(BadSetting, match="larger than 1024 KiB"):
        read_access(large)


def after(file: Path, seconds: float) -> Callable[[], float]:
    """A clock that shows so many seconds after the last change of the file."""
    return lambda: file.stat().st_ctime + seconds if file.exists() else 0.0


def test_a_changed_file_holds_from_the_next_call_and_a_bad_one_does_not(tmp_path: Path) -> None:
    file, ann = tmp_path / "rules.yaml", user("ann")
    file.write_text(RULES)
    rules = Permissions(
        file, whose=lambda context: ann, clock=after(file, 2 * permissions.SETTLED_S)
    )

    def may(path: str) -> bool:
        found = rules.rights(None)
        return found is not None and found.may(SUBMIT, path)

    assert may("/ml") and not may("/new") and not rules.notes()
    file.write_text("pools:\n  /: {administer: [], submit: [ann]}\n  /ml: {submit: []}\n")
    assert not may("/ml"), "the first call after a right was revoked has it no more"
    assert may("/new")
    file.write_text("pools:\n  /: {administer: [], submt: [ann]}\n")
    assert may("/new") and not may("/ml")
    (note,) = rules.notes()
    assert "line 2: pools./: unknown permission `submt`" in note.text
    assert note.text.endswith("the rules read before it are still in force")
    file.unlink()
    assert may("/new"), "to delete the file gives nobody more, or less"
    assert "No such file" in rules.notes()[0].text
    file.write_text("pools:\n  /: {administer: [ann]}\n")
    assert not rules.notes(), "health looks at the file as well"
    assert rules.rights(None) is None


def test_a_file_that_is_being_written_is_not_taken(tmp_path: Path) -> None:
    """The first half of a file is a file, which may open what the second half closes."""
    file, soon = tmp_path / "rules.yaml", [0.0]
    file.write_text("pools:\n  /: {administer: [root]}\n")
    rules = Permissions(
        file, whose=lambda context: user("ann"), clock=lambda: after(file, soon[0])()
    )

    def may(path: str) -> bool:
        found = rules.rights(None)
        return found is not None and found.may(SUBMIT, path)

    soon[0] = 0.9 * permissions.SETTLED_S
    opens = "pools:\n  /: {administer: [root], submit: ['*']}\n"
    for text in (opens, opens + "  /ml: {}\n", opens + "  /ml: {submit: []}\n"):
        file.write_text(text)
        assert not may("/ml") and not may("/other") and not rules.notes()
    soon[0] = 2 * permissions.SETTLED_S
    assert may("/other") and not may("/ml")
    file.write_text("pools:\n  /: {administer: [ann]}\n")
    soon[0] = -3600.0
    assert rules.rights(None) is None, "a clock that was set back keeps no file from being read"


@pytest.mark.parametrize("mode", [0o660, 0o602])
def test_a_file_that_others_can_write_is_not_taken(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    file.chmod(mode)
    with pytest.raises(BadSetting, match=f"mode 0{mode:o}"):
        Permissions(file)
    file.chmod(0o644)
    ann, clock = user("ann"), after(file, 2 * permissions.SETTLED_S)
    rules = Permissions(file, whose=lambda context: ann, clock=clock)
    file.write_text("pools:\n  /: {administer: [ann]}\n")
    file.chmod(mode)
    assert rules.rights(None) is not None
    assert "chmod go-w" in rules.notes()[0].text
    file.chmod(0o640)
    assert rules.rights(None) is None and not rules.notes()


@pytest.mark.needs_root("to give files away")
def test_a_file_of_another_user_is_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    os.chown(file, 12345, -1)
    with pytest.raises(BadSetting, match="it belongs to user"):
        Permissions(file)


def test_the_rights_that_are_kept_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "RIGHTS_KEPT_MAX", 10)
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    people = iter(user(f"user-{number}") for number in range(100))
    rules: Any = Permissions(file, whose=lambda context: next(people))
    for _ in range(100):
        assert rules.rights(None) is not None
    assert len(rules._loaded.rights) <= 10


def test_without_a_file_nothing_is_asked() -> None:
    rules = Permissions(whose=lambda context: pytest.fail("who calls does not matter"))
    assert rules.rights(None) is None and not rules.restricts and not rules.notes()
