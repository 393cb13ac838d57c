"""Tasks that our own executor runs (`executor/`): the runs that may be, and their form.

All such tasks of an agent carry the same description of the executor, to the last field, for else
the master refuses them: what an agent has is remembered (`KeeperAt`), and its id follows from the
description.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from peloton.actors.host.messages import StartRun
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.backends.keeper import wire
from peloton.backends.keeper.secret_files import RunSecret
from peloton.backends.keeper_messages import BadRun, RunRequest, wire_form
from peloton.backends.mesos.executor.agent_environment import (
    EDITION,
    EDITION_VARIABLE,
    IDLE_VARIABLE,
)
from peloton.backends.mesos.executor.talk import HOST
from peloton.backends.mesos.runs.words import Bundle

PREFIX = "peloton-keeper-"
"""With which the ids of all our executors begin."""
EXECUTOR_NEED = Resources(UNIT // 10, 64 * UNIT)
"""What the executor of an agent takes, beside its tasks."""
CHOICE = "mesos.executor"
"""The label by which a spec chooses, and its values."""
KEEPER, COMMAND = "keeper", "command"
FAILED_STARTS_MAX = 2
"""So often in a row an agent may not start it; then tasks there run by the command executor."""
START_AGAIN_S = 600.0
"""After this long it is tried once more."""
_DIGEST_CHARS = 12


class NotByKeeper(ValueError):
    """A spec asks for the keeper, which cannot provide a part of it on Mesos."""


class KeeperProgram(NamedTuple):
    """The command and user of the executor on agents, and how long it stays idle."""

    command: str = ""
    user: str = "root"
    idle_s: float = 60.0

    def runs(self, spec: RunSpec) -> bool:
        """Return whether our own executor runs this spec: by default batch tasks.

        Raises NotByKeeper.
        """
        chosen = next((label.value for label in spec.labels if label.key == CHOICE), "")
        if chosen not in ("", KEEPER, COMMAND):
            raise NotByKeeper(f"the label {CHOICE} is {KEEPER} or {COMMAND}, not {chosen!r}")
        if spec.secrets:
            self._must(spec, chosen)
            return True
        if chosen == COMMAND:
            return False
        obstacle = self._obstacle(spec)
        if chosen == KEEPER and obstacle:
            raise NotByKeeper(f"the keeper runs nothing on Mesos that has {obstacle}")
        return not obstacle and (chosen == KEEPER or not spec.asks)

    def _must(self, spec: RunSpec, chosen: str) -> None:
        """Raise NotByKeeper if our own executor cannot run a spec with secrets."""
        obstacle = self._obstacle(spec)
        if obstacle:
            raise NotByKeeper(
                f"secrets together with {obstacle}: only our own executor gives secrets on Mesos, "
                "and it does not give that; leave out one of the two"
            )
        if chosen == COMMAND:
            raise NotByKeeper(
                f"secrets together with the label {CHOICE}: {COMMAND}: only our own executor gives "
                "secrets on Mesos; take the label away"
            )

    def _obstacle(self, spec: RunSpec) -> str:
        """Return which part of a spec only an executor of Mesos can provide."""
        found = {
            "an image": spec.image,
            "several containers": spec.containers,
            "a volume": spec.volume,
            "a check": spec.check,
            "files to fetch": spec.uris,
            "an executor of its own": spec.mesos is not None and spec.mesos.executor,
            "a container": spec.mesos is not None and spec.mesos.container,
            "gpus": spec.resources.gpu,
            "revocable cpu": spec.resources.slack,
            "another account": spec.user not in ("", self.user),
        }
        return next((what for what, there in found.items() if there), "")


def default_command() -> str:
    """Return the command for agents on this machine, which see these very files."""
    program = Path(__file__).parents[1] / "executor" / "__main__.py"
    return f"exec {shlex.join((sys.executable, '-I', '-S', str(program)))}"


class KeeperAt:
    """The executor of one agent, as far as it is known."""

    def __init__(self, program: KeeperProgram) -> None:
        self._program = program
        self._info: Mapping[str, Any] | None = None
        self._spoke = False
        self._for_nothing = False
        """A task was killed before it was there: its end says nothing of whether it can start."""
        self._failures = 0
        self.why_not_there = ""
        """What the agent said when it could not be started, or ended."""

    @property
    def executor_id(self) -> str:
        """The id of the executor that is there, as far as is known; empty while there is none."""
        return "" if self._info is None else str(self._info["executor_id"]["value"])

    @property
    def fails(self) -> bool:
        """Whether the executor has ended too often before it sent anything."""
        return self._failures >= FAILED_STARTS_MAX

    def runs(self, spec: RunSpec) -> bool:
        """Return whether the executor runs this spec here."""
        return self._program.runs(spec) and not self.fails

    def info(self, bundle: Bundle) -> Mapping[str, Any]:
        """Return the executor's description. Raises NotOffered.

        An executor that is not there yet takes its resources from the bundle, and is there from now
        on.
        """
        if self._info is None:
            self._info = executor_info(self._program, _one_of_each(bundle.take(EXECUTOR_NEED, ())))
            self._spoke = self._for_nothing = False
        return self._info

    def listed(self, info: Mapping[str, Any]) -> None:
        """Take the master's word that this executor is there. Executors of others are ignored."""
        if self._info is None and info["executor_id"]["value"].startswith(_base(self._program)):
            self._info, self._spoke = info, True

    def is_beside(self, info: Mapping[str, Any]) -> bool:
        """Return whether this is an executor of ours with another description."""
        id_ = str(info["executor_id"]["value"])
        return id_.startswith(PREFIX) and id_ != self.executor_id

    def spoke(self) -> None:
        """Note that the executor has sent something: it could be started."""
        self._spoke, self._failures, self.why_not_there = True, 0, ""

    def needed_no_more(self, executor_id: str) -> None:
        """Note that a task of this executor was killed before the executor had sent anything."""
        self._for_nothing |= executor_id == self.executor_id

    def try_again(self) -> None:
        """Allow another try to start the executor, which may be possible by now.

        Another failure is enough to think that it is not.
        """
        self._failures = min(self._failures, FAILED_STARTS_MAX - 1)

    def over(self, executor_id: str) -> None:
        """Note that the executor of this id has ended."""
        if executor_id and executor_id == self.executor_id:
            self._failures += not (self._spoke or self._for_nothing)
            self._info = None

    def missing(self) -> None:
        self._info = None


def executor_info(program: KeeperProgram, resources: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the executor's info. Its id differs if anything in it does."""
    id_ = f"{_base(program)}-{_digest(resources)}"
    return {
        "type": "CUSTOM",
        "executor_id": {"value": id_},
        "name": id_,
        "source": "peloton",
        "command": _command(program),
        "resources": resources,
    }


def keeper_data(run: StartRun, secrets: tuple[RunSecret, ...] = ()) -> str:
    """Return the order as TaskInfo.data, which no master lists. Raises NotByKeeper."""
    spec = run.spec
    request = RunRequest(
        run.run,
        HOST,
        spec.value,
        shell=spec.shell,
        arguments=spec.arguments,
        environment=dict(run.environment),
        memory_mb=spec.resources.memory / UNIT,
        secrets=secrets,
    )
    try:
        form, _ = wire_form(request)
    except BadRun as bad:
        raise NotByKeeper(str(bad)) from bad
    return base64.b64encode(wire.encode(form)).decode()


def _one_of_each(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the same amounts, in an order that does not depend on the offers."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        kind = json.dumps({**entry, "scalar": {}}, sort_keys=True)
        known = found.get(kind, {"scalar": {"value": 0.0}})
        amount = round(known["scalar"]["value"] + entry["scalar"]["value"], 3)
        found[kind] = {**entry, "scalar": {"value": amount}}
    return [found[kind] for kind in sorted(found)]


def _command(program: KeeperProgram) -> dict[str, Any]:
    told = {IDLE_VARIABLE: f"{program.idle_s:g}", EDITION_VARIABLE: EDITION}
    variables = [{"name": name, "value": value} for name, value in told.items()]
    return {"shell": True, "value": program.command, "environment": {"variables": variables}}


def _base(program: KeeperProgram) -> str:
    return f"{PREFIX}{_digest(_command(program))}"


def _digest(what: Any) -> str:
    text = json.dumps(what, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:_DIGEST_CHARS]
