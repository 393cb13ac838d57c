"""The placement of tasks: `placement` of a daemon's file.

Turns texts with units into seconds. The assembly finds the installed strategies.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from peloton.settings.archive import seconds

JOB_TYPES = ("BATCH", "SERVICE", "DAEMON")
BY_TYPE = {"BATCH": "pack", "SERVICE": "mimir"}
ATTEMPTS_MAX = 100


class RetrySetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long an admitted task may hold its allocation without a host.

    A cycle has `attempts_per_cycle` attempts. The first takes `timeout`, each further one `backoff`
    more than the one before. After a cycle the task gives its allocation back.
    """

    enabled: bool = True
    attempts_per_cycle: int = 3
    timeout: str = "10m"
    backoff: str = "5m"

    @property
    def timeout_s(self) -> float:
        return seconds(self.timeout)

    @property
    def backoff_s(self) -> float:
        return seconds(self.backoff)


class PlacementSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The placement. `strategies`: by the type of a job, the strategy that ranks hosts for it.

    The job or its label may name another one. All daemons are to have the same.
    """

    strategies: dict[str, str] = msgspec.field(default_factory=lambda: {**BY_TYPE})
    retry: RetrySetting = RetrySetting()


def placement_problems(found: PlacementSetting) -> Iterator[str]:
    """Yield what is wrong."""
    for kind in sorted(found.strategies):
        if kind not in JOB_TYPES:
            yield f"placement.strategies.{kind}: there are {', '.join(JOB_TYPES)}"
    retry = found.retry
    for field, text in (("timeout", retry.timeout), ("backoff", retry.backoff)):
        try:
            length_s = seconds(text)
        except ValueError as error:
            yield f"placement.retry.{field}: {error}"
        else:
            if field == "timeout" and not length_s:
                yield f"placement.retry.timeout: must be longer than {text}; enabled: false is off"
    if not 1 <= retry.attempts_per_cycle <= ATTEMPTS_MAX:
        text = f"{retry.attempts_per_cycle} is not between 1 and {ATTEMPTS_MAX}"
        yield f"placement.retry.attempts_per_cycle: {text}"
