"""What a function says that its workers need; an executor refuses it where they have less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peloton.sdk.errors import BadSpec
from peloton.sdk.executor.options import WorkerSettings

AMOUNTS = ("cpu", "gpu", "memory_mb", "disk_mb")


@dataclass(frozen=True)
class TaskNeeds:
    """The options that a task has named; its other ones may be any."""

    settings: WorkerSettings
    named: tuple[str, ...]

    def refuse_less(self, offered: WorkerSettings) -> None:
        """Raise BadSpec if the workers of an executor have less than the task needs."""
        for name in self.named:
            need, has = getattr(self.settings, name), getattr(offered, name)
            amount = name in AMOUNTS
            if amount and need is not None and (1.0 if has is None else has) < need:
                text = f"the task needs {need:g}, workers of this executor have {has or 0:g}"
                raise BadSpec(text, field=name)
            if name == "pool" and need != has:
                raise BadSpec(f"the task belongs to {need}, this executor to {has}", field=name)


class NeedsWorkers:
    """A function, and what it needs."""

    function: Callable[..., Any]
    needs: TaskNeeds
