"""What the config of a job may say without effect.

Turns configs into lines for people: for the events of an instance, and for whoever creates a job.
Takes the messages of the wire by their fields. It must not refuse anything: what would end
differently than its client expects is refused where configs are translated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PREFIX = "ignored: "


def of_task(config: Any, sla: Any) -> tuple[str, ...]:
    """What a TaskConfig says without effect."""
    found = []
    if config.revocable and not sla.revocable:
        found.append("revocable (only that of the job's sla counts)")
    if config.resource.fdLimit:
        found.append("resource.fdLimit (it is not enforced)")
    return tuple(found)


def of_configs(config: Any) -> tuple[str, ...]:
    """What a whole JobConfig says without effect, each thing once."""
    tasks = [config.defaultConfig, *(config.instanceConfig[at] for at in config.instanceConfig)]
    return tuple(dict.fromkeys(text for task in tasks for text in of_task(task, config.sla)))


def line(texts: Iterable[str]) -> str:
    """All of it as one line; empty where there is nothing."""
    joined = ", ".join(texts)
    return PREFIX + joined if joined else ""
