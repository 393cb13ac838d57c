"""docs/access.md: its examples mean what the page says, and its numbers are those in use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from peloton.gateway.access.access_table import ACCESS_TABLE
from peloton.gateway.access.permissions import INCLUDED_IN, Rights
from peloton.gateway.server import audit, audit_file
from peloton.runtime.core.principal import BASIC, Principal
from peloton.settings.permissions_file import Permission, read_access

PAGE = (Path(__file__).parents[3] / "docs" / "access.md").read_text(encoding="utf-8")
SUBMIT, STOP, SEE = Permission.SUBMIT, Permission.STOP, Permission.SEE


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_rules_are_valid_and_mean_what_is_said(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    file = tmp_path / "access.yaml"
    file.write_text(text)
    rules = read_access(file)
    ann, bob, stranger = (Rights(rules, Principal(name, BASIC)) for name in ("ann", "bob", "zoe"))
    assert bob.may(SUBMIT, "/ml") and not bob.may(SUBMIT, "/ml/payroll")
    assert ann.may(STOP, "/ml/payroll") and ann.may(SEE, "/ml/payroll")
    assert stranger.may(SEE, "/ml") and not stranger.may(SEE, "/ml/payroll")
    assert Rights(rules, Principal("x", BASIC, role="admin")).everything


def test_the_table_of_permissions_is_complete() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*) \|$", PAGE, re.MULTILINE)
    included = {
        one: {each for each, by in INCLUDED_IN.items() if one in by and each != one}
        for one in Permission
    }
    assert {name for name, _ in rows} == {*Permission}
    for name, said in rows:
        said_names = {*Permission} - {name} if said == "all" else set(re.findall(r"`(\w+)`", said))
        assert said_names == included[Permission(name)]


def test_the_lines_have_the_fields_that_are_described(tmp_path: Path) -> None:
    described = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE.split("## The audit log")[1], re.M)
    fields = {name for cell in described for name in re.findall(r"\w+", cell)}
    log = audit.AuditLog(tmp_path / audit.AUDIT_LOG, waiting_max=1)
    who = Principal("ann", BASIC, "10.0.0.7", "python", role="admin")
    entry = audit.AuditEntry(1.0, who, "a.B.C", {}, True, 7, "denied", None, None)
    for _ in range(1000):
        log.add(entry)
        log.add_refused(entry)
    log.close()
    (tmp_path / "all").write_bytes((tmp_path / audit.AUDIT_LOG).read_bytes())
    made = [json.loads(line) for line in (tmp_path / "all").read_text().splitlines()]
    for text in blocks("json")[0].splitlines():
        shown = json.loads(text)
        assert fields >= shown.keys()
        assert shown["method"] in ACCESS_TABLE
    assert {name for line in made for name in line} <= fields
    assert fields - {name for line in made for name in line} <= {"error", "lost"}


@pytest.mark.parametrize(
    "said",
    [
        f"at {audit_file.FILE_BYTES_MAX // 2**20} MiB the file becomes `audit.log.1`",
        f"up to `audit.log.{audit_file.FILES_KEPT_MAX}`",
        f"{audit.WAITING_MAX:,} lines wait in memory",
        "syncs once a second",
    ],
)
def test_numbers_are_those_in_use(said: str) -> None:
    assert said in " ".join(PAGE.split())
    assert audit.SYNC_S == 1.0
