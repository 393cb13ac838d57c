"""Lines of an audit log, made and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peloton.gateway.server.audit import AuditEntry
from peloton.runtime.core.principal import BASIC, Principal


def lines_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def entry(text: str = "") -> AuditEntry:
    who = Principal("ann", BASIC)
    return AuditEntry(0.0, who, "a.B.C", {"job": text}, False, 0, "", None, None)
