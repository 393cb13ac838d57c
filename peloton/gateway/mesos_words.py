"""What of a config only hosts of Mesos understand: the executor of a task's own.

Turns these fields into what such a host is told in the words of Mesos, or into a refusal that names
the field. It must not drop a field that would have an effect.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from peloton.actors.host.messages import MesosWords
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task

_OF_EXECUTOR = ("type", "executor_id", "data", "name", "source", "labels", "shutdown_grace_period")
_FOLLOWS = ("type", "executor_id", "resources", "framework_id")
"""Of an executor: there is one kind, its id is made of the run's, it uses what its task has been
given, and whose it is is known. So these say nothing, whatever a client sends."""
_TASKS = {"command": "command", "container": "container", "discovery": "ports"}
"""What an executor has of its task, and where that is said."""


class BadForMesos(ValueError):
    """`field` is the path within the config."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field, self.text = field, text


def mesos_words(sent: task.TaskConfig) -> MesosWords | bool:
    """The record of it, or False; raises BadForMesos."""
    executor = _executor(sent.executor) if sent.HasField("executor") else ""
    return MesosWords(executor) if executor else False


def _executor(sent: mesos.ExecutorInfo) -> str:
    if sent.type != mesos.ExecutorInfo.CUSTOM:
        raise BadForMesos("executor.type", "Unsupported type in executor config")
    if not sent.data:
        raise BadForMesos("executor.data", "Data field not set in executor config")
    for field, _ in sent.ListFields():
        if field.name in _TASKS:
            text = f"an executor has its task's: say it in {_TASKS[field.name]} of the task"
            raise BadForMesos(f"executor.{field.name}", text)
        if field.name not in (*_OF_EXECUTOR, *_FOLLOWS):
            raise BadForMesos(f"executor.{field.name}", "is not supported yet")
    return _text({name: one for name, one in as_words(sent).items() if name not in _FOLLOWS})


def as_words(sent: Any) -> dict[str, Any]:
    """A message of Mesos as Mesos reads it in JSON: what is set, by name."""
    found: dict[str, Any] = {}
    for field, value in sent.ListFields():
        if field.is_repeated:
            found[field.name] = [_word(field, one) for one in value]
        else:
            found[field.name] = _word(field, value)
    return found


def _word(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_words(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _text(words: dict[str, Any]) -> str:
    return json.dumps(words, sort_keys=True, separators=(",", ":"))
