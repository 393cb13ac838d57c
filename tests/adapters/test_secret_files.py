"""Files with secrets that are malformed: errors give file, line and keys, and never a value."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from peloton.assembly import access
from peloton.cli.shared.session import login
from peloton.sdk.errors import BadSpec
from peloton.settings.daemon import DaemonSettings, parse

CANARY = "S3cret-canary"
MALFORMED = (
    f"!{CANARY} x", f"!{CANARY}", f"*{CANARY}", f"!!int {CANARY}", f"!!float {CANARY}",
    f"!!timestamp {CANARY}", f"!!bool {CANARY}", f"!!binary {CANARY}", f"!!python/name:{CANARY} x",
    f"{{{CANARY}: 1, {CANARY}: 2}}", f"[{CANARY}", f'"{CANARY}\\q"', f"'{CANARY}", f"%{CANARY}",
    f"`{CANARY}", f"@{CANARY}", f"{CANARY}: x", f"!<{CANARY}", f"&a [*a, {CANARY}]",
    f"&{CANARY} [*{CANARY}]", f"{{? [{CANARY}] : 1}}", f"|{CANARY}", f"{CANARY}\x01",
    f"<<: {CANARY}", f"{{<<: {CANARY}}}",
)  # fmt: skip
"""What may stand where a password belongs."""
AT = "  - username: system\n    password: {}\n    role: all\n"
FLOW = "  - {{username: system, password: {}, role: all}}\n"
ROLES = "roles: [{role: all, accept: ['*']}]\ninternal_user: system\n"
MISPLACED = (
    f"users: [{{username: system, password: x, role: {CANARY}}}]\n" + ROLES,
    f"users: [{{username: system, password: x, role: all, {CANARY}: x}}]\n" + ROLES,
    f"users: [{{username: system, {CANARY}}}]\n" + ROLES,
    f"users: [{CANARY}]\n" + ROLES,
    f"users: {CANARY}\n" + ROLES,
    f"{CANARY}: x\n" + ROLES,
    CANARY,
    f"users: [{{username: {CANARY}, password: x, role: all}}, "
    f"{{username: {CANARY}, password: x, role: all}}]\n" + ROLES,
    f"roles: [{{role: all, accept: [{CANARY}]}}]\ninternal_user: x\n",
    f"roles: [{{role: all, reject: [{CANARY}]}}]\ninternal_user: x\n",
    f"roles: [{{role: {CANARY}}}, {{role: {CANARY}}}]\ninternal_user: x\n",
    f"users: []\ninternal_user: {CANARY}\n",
    f"users: [{{username: system, password: x, role: {CANARY}}}]\n"
    f"roles: [{{role: {CANARY}}}]\ninternal_user: system\n",
)
FILES = [
    *("users:\n" + form.format(text) + ROLES for text in MALFORMED for form in (AT, FLOW)),
    *MISPLACED,
]


def with_users(folder: Path, text: str) -> DaemonSettings:
    file = folder / "users.yaml"
    file.write_text(text)
    file.chmod(0o600)
    raw = {
        "cluster": "test",
        "listen": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {"simulated": {"hosts": [{"name": "h"}]}},
        "auth": {"type": "BASIC", "file": "users.yaml"},
    }
    return parse(raw, folder)


@pytest.mark.parametrize("text", FILES)
def test_errors_of_a_file_of_users_repeat_no_value(text: str, tmp_path: Path) -> None:
    found = access.problems(with_users(tmp_path, text))
    accepted_as_text = f"password: <<: {CANARY}"
    assert found or accepted_as_text in text
    for problem in found:
        assert problem.startswith(f"auth.file: {tmp_path}/users.yaml: "), problem
        assert CANARY not in problem


def test_the_line_of_a_value_that_has_not_the_form_of_its_tag(tmp_path: Path) -> None:
    text = "users:\n" + AT.format("2026-13-45") + ROLES
    (problem,) = access.problems(with_users(tmp_path, text))
    assert "users.yaml: line 3: " in problem


LOGINS = [
    *(f"username: ann\npassword: {text}\n" for text in MALFORMED),
    *(f"{{username: ann, password: {text}}}\n" for text in MALFORMED),
    f"{CANARY}: 1\n{CANARY}: 2\n",
    CANARY,
    f"- {CANARY}",
    f"password: {CANARY}",
]


@pytest.mark.parametrize("text", LOGINS)
def test_errors_of_a_login_file_repeat_no_value(text: str, tmp_path: Path) -> None:
    file = tmp_path / "login"
    file.write_text(text)
    try:
        login(str(file))
    except (BadSpec, click.ClickException) as error:
        assert CANARY not in f"{error} {error.args} {getattr(error, 'field', '')}"
