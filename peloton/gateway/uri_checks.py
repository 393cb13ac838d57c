"""Jobs that want files fetched, on hosts that fetch none.

Turns a job's configs into a refusal that names the field. Must not know who does fetch.
"""

from __future__ import annotations

from peloton.actors.job.slice.task_config import TaskConfig
from peloton.gateway.translate_job import ParsedJob
from peloton.gateway.translate_task import LATER, BadConfig


def refuse_uris(wanted: ParsedJob) -> None:
    """Raises BadConfig where an instance has any."""
    refuse_uris_of(wanted.spec.default, "config.defaultConfig")
    for piece in wanted.pieces.values():
        for override in piece:
            refuse_uris_of(override.config, f"config.instanceConfig[{override.instance}]")


def refuse_uris_of(config: TaskConfig, field: str) -> None:
    """The same of one config."""
    if config.command is not None and config.command.uris:
        raise BadConfig(f"{field}.command.uris", f"fetching files {LATER}")
