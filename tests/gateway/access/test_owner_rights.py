"""What the owner of a schedule may do now, by users and rules that change between two questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peloton.actors.schedule.messages import RIGHTS, AskRights, RightsTold, schedule_key
from peloton.assembly.owner_rights import MOMENT, OwnerRights, audit_entry
from peloton.gateway.access.basic_users import BasicUsers, parse_users
from peloton.gateway.access.permissions import Permissions
from peloton.runtime.core.principal import PART_LENGTH_MAX
from peloton.runtime.core.turning.envelope import Envelope

NIGHTLY = schedule_key("nightly")
RULES = """\
pools:
  /: {administer: ["role:admin"]}
  /ml: {submit: [ann, "role:ml"]}
  /ml/open: {submit: ["*"]}
"""
LONG = "n" * (PART_LENGTH_MAX + 2)
SUBMIT = "peloton.ops.v1.Schedules:*"


def users(**roles: str) -> BasicUsers:
    """Users of these roles; `nobody` is the default user, and `reader` may create nothing."""
    listed: list[Any] = [{"username": "root", "password": "r", "role": "admin"}]
    for name, role in roles.items():
        person = {"username": name, "password": "p"} if name != "nobody" else {}
        listed.append({**person, "role": role})
    named = [
        {"role": "admin", "accept": ["*"]},
        {"role": "ml", "accept": [SUBMIT]},
        {"role": "other", "accept": [SUBMIT]},
        {"role": "reader", "accept": ["*"], "reject": [SUBMIT]},
    ]
    return parse_users({"users": listed, "roles": named, "internal_user": "root"})


def why_not(
    owner: str, path: str, *, known: BasicUsers | None = None, rules: Path | None = None
) -> str:
    denied: list[str] = []
    judge = OwnerRights(Permissions(rules), lambda: known, denied=lambda _, why: denied.append(why))
    asked = AskRights(NIGHTLY, 1.0, 60.0, owner, path)
    (answer,) = judge.receive([Envelope(RIGHTS, asked, sender=NIGHTLY)], 0.0)
    assert isinstance(answer, Envelope) and (answer.to, answer.sender) == (NIGHTLY, RIGHTS)
    told = answer.message
    assert isinstance(told, RightsTold) and told.asked == asked
    assert denied == ([told.why] if told.why else [])
    return told.why


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "access.yaml"
    file.write_text(RULES)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("owner", ["tls:ann@10.0.0.7", "unverified:ann", "none:", "basic:ann"])
def test_without_users_and_rules_everybody_may(owner: str) -> None:
    assert why_not(owner, "/ml") == ""


NO_USER, NO_CALL = "is no user any longer", "may no longer create schedules"
NO_POOL = "may no longer create jobs in pool "


@pytest.mark.parametrize(
    ("owner", "path", "text"),
    [
        ("basic:ann@10.0.0.7/cli", "/ml", ""),
        ("basic:ann", "/ml/open", ""),
        ("basic:ann", "/other", f"ann, its owner, {NO_POOL}/other"),
        ("basic:bob", "/ml", ""),  # by the role that the users give him now
        ("basic:bob", "/other", f"bob, its owner, {NO_POOL}/other"),
        ("basic:zoe", "/ml/open", f"zoe, its owner, {NO_USER}"),
        ("basic:rita", "/ml/open", f"rita, its owner, {NO_CALL}"),
        ("basic:root", "/other", ""),
        ("basic:", "/ml", f"a client that gave no name, its owner, {NO_POOL}/ml"),
        ("basic:", "/ml/open", ""),
        (f"basic:{LONG[:PART_LENGTH_MAX]}", "/ml", ""),  # its role says so
        ("tls:ann", "/ml", ""),  # proved in another way: a matter of the rules alone
        ("tls:zoe", "/ml", f"zoe, its owner, {NO_POOL}/ml"),
        ("unverified:ann", "/ml", f"ann (unverified), its owner, {NO_POOL}/ml"),
        ("unverified:ann", "/ml/open", ""),
    ],
)
def test_users_and_rules_as_they_are_now(owner: str, path: str, text: str, rules: Path) -> None:
    roles = {"ann": "other", "bob": "ml", "rita": "reader", "nobody": "other", LONG: "ml"}
    assert why_not(owner, path, known=users(**roles), rules=rules) == text


def test_an_answer_is_not_kept(rules: Path) -> None:
    now = [users(bob="ml")]
    judge = OwnerRights(Permissions(rules), lambda: now[0], denied=print)
    asked = AskRights(NIGHTLY, 1.0, 60.0, "basic:bob", "/ml")
    assert judge.why_not(asked) == ""
    now[0] = users(bob="other")
    assert judge.why_not(asked) == f"bob, its owner, {NO_POOL}/ml"
    now[0] = users(bob="ml")
    assert judge.why_not(asked) == ""


def test_users_without_rules() -> None:
    assert why_not("basic:ann", "/ml", known=users(ann="other")) == ""
    assert why_not("basic:zoe", "/ml", known=users(ann="other")) == f"zoe, its owner, {NO_USER}"


def test_what_the_audit_log_keeps() -> None:
    entry = audit_entry(AskRights(NIGHTLY, 1.0, 60.0, "basic:bob@h", "/ml"), "bob may not")
    assert (entry.principal.name, entry.method, entry.details) == ("bob", MOMENT, "bob may not")
    assert entry.objects == {"schedule": "nightly", "pool": "/ml"}
