"""Lines of an audit log, made and read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peloton.gateway.audit import AuditEntry
from peloton.runtime.core.principal import BASIC, Principal
from tests.gateway.fleet_fixture import WAIT_S_MAX


def lines_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def until(wanted: Callable[[], Any]) -> Any:
    end_s, pause = time.monotonic() + WAIT_S_MAX, threading.Event()
    while time.monotonic() < end_s:
        found = wanted()
        if found:
            return found
        pause.wait(0.01)
    raise AssertionError("it never came to be")


def entry(text: str = "") -> AuditEntry:
    who = Principal("ann", BASIC)
    return AuditEntry(0.0, who, "a.B.C", {"job": text}, False, 0, "", None, None)
