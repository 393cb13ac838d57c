"""The failed instances of a job: what they ran and printed, and the job that runs them again.

Callers limit how many instances are shown, so that not thousands of files are read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from peloton.cli.jobs import batch
from peloton.cli.jobs.batch import PAGE
from peloton.cli.shared.options import is_given
from peloton.cli.shared.values import spans_text
from peloton.cli.texts.outputs import TAIL_BYTES, tail
from peloton.cli.texts.task_texts import termination
from peloton.sdk.errors import Conflict, NotFound, PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client

COMMAND_CHARS_MAX = 100
FIRST_NUMBER = "retryOfInstance"
"""The label of an instance that runs again, with the number that it had at first."""
FAILED = ("FAILED", "LOST")
FAILED_STATES = (*FAILED, "KILLED")
RETRY_NAME = re.compile(r"-retry-\d+\Z", re.ASCII)
NAMED_MAX = 1000
"""Failed instances that are looked at to name them."""
GROUPS_MAX, QUOTED_MAX = 10, 3
FOLDER_CHANGE = re.compile(r"""cd (?:'[^']*'|"'"|[^\s'";|&])+ \|\| exit 125; """)
"""What `run` and `map` put before a command."""
LINE_CHARS = 200
PLAIN = ("Command exited with", "Command terminated with", "Stop Task by")
"""So begin messages that say no more than how it ended."""
READ_MAX_BYTES = 16 * 1024 * 1024


def failed_tasks(peloton: Client, job: str, *, states: Sequence[str], most: int) -> list[Any]:
    """Return the lowest instances in these states."""
    from peloton.sdk.tasks import TaskQuery

    wanted = TaskQuery(states=tuple(states), page=(0, most), sort=("instanceId",))
    return sorted(peloton.tasks.query(job, wanted).records, key=lambda one: one.instanceId)


def failed_lines(peloton: Client, job: str, *, states: Sequence[str], most: int) -> Iterator[str]:
    """Yield lines about failed instances for people."""
    from peloton.sdk.render import enum_name

    for one in failed_tasks(peloton, job, states=states, most=most):
        state = enum_name(one.runtime, "state")
        how = how_failed(one)
        text = short(one.config.command.value)
        yield f"[instance {number_of(one)}] {state}{', ' + how if how else ''}: {text}"
        for line in tail(ending(peloton, job, instance=one.instanceId)):
            yield f"    {line}"


def how_failed(task: Any) -> str:
    """Return the exit code or signal of a task, and its message if that says more."""
    how = ended_by(task)
    said = str(task.runtime.message)
    plain = how and (said in how or said.startswith(PLAIN))
    return how if plain else ": ".join(filter(None, (how, said)))


def ended_by(task: Any) -> str:
    """Return the exit code or signal of a task, or what ended it; empty if there is neither."""
    return termination(task.runtime).removeprefix("FAILED").removeprefix(": ")


def number_of(task: Any) -> str:
    """Return the number of an instance; of one that runs again, with the number it had at first."""
    first = [one.value for one in task.config.labels if one.key == FIRST_NUMBER]
    return f"{task.instanceId}, at first {first[0]}" if first else str(task.instanceId)


def groups_lines(peloton: Client, job: str, *, only: int | None = None) -> Iterator[str]:
    """Yield lines that name the failed instances, those that ended alike together.

    The first groups have the last line that their lowest instance wrote on stderr. `only` is the
    one instance that is asked about.
    """
    found = failed_tasks(peloton, job, states=FAILED, most=NAMED_MAX)
    alike: dict[str, list[int]] = {}
    for one in found:
        if only is None or one.instanceId == only:
            # Not what is said beside a code: what was measured differs from one to the other.
            how = ended_by(one) or one.runtime.message
            alike.setdefault(how or "failed", []).append(one.instanceId)
    largest = sorted(alike.items(), key=lambda group: (-len(group[1]), group[1][0]))
    for at, (how, instances) in enumerate(largest[:GROUPS_MAX]):
        what = "instances" if len(instances) > 1 else "instance"
        yield f"{how}: {what} {spans_text(instances)}"
        said = last_line(peloton, job, instance=instances[0]) if at < QUOTED_MAX else ""
        if said:
            yield f"  the stderr of {instances[0]} ends with: {said}"
    if len(largest) > GROUPS_MAX:
        yield f"and {len(largest) - GROUPS_MAX} other ways to fail"
    if len(found) >= NAMED_MAX:
        yield f"only the first {NAMED_MAX} failed instances were looked at"


def last_line(peloton: Client, job: str, *, instance: int) -> str:
    """Return the last line of an instance on stderr; empty if it cannot be had, or is far to
    read."""
    lines = tail(ending(peloton, job, instance=instance))
    return lines[-1].strip()[-LINE_CHARS:] if lines else ""


def run_lines(peloton: Client, job: str, *, instance: int, run: int) -> list[str]:
    """Return the last lines of an earlier run on stderr, or else on stdout; none if they cannot
    be had."""
    try:
        newest = peloton.tasks.get(job, instance).result.runtime.mesosTaskId.value
        name = f"{newest.rpartition('-')[0]}-{run}"
        for file in ("stderr", "stdout"):
            lines = tail(_last(peloton.tasks.logs(job, instance, run=name, filename=file)))
            if lines:
                return [line[-LINE_CHARS:] for line in lines]
    except PelotonError:
        return []  # a hint only, as below
    return []


def ending(peloton: Client, job: str, *, instance: int) -> bytes:
    """Return what an instance has written last on stderr; empty if it cannot be had."""
    try:
        return _last(peloton.tasks.logs(job, instance, filename="stderr"))
    except PelotonError:
        return b""  # a hint only; `task logs` says what is wrong


def _last(pieces: Iterable[bytes]) -> bytes:
    kept, size = b"", 0
    for piece in pieces:
        kept, size = (kept + piece)[-TAIL_BYTES:], size + len(piece)
        if size > READ_MAX_BYTES:
            return b""
    return kept


def short(text: str) -> str:
    """Return the command in one line, without the change of folder that `run` puts before it."""
    found = FOLDER_CHANGE.match(text)
    joined = "; ".join((text[found.end() :] if found else text).splitlines())
    return joined if len(joined) <= COMMAND_CHARS_MAX else f"{joined[:COMMAND_CHARS_MAX]}…"


# ---- once more ----


def failed_again(peloton: Client, job: str, *, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return a job of the failed commands of another job, and the path of its pool.

    Options take precedence over what the other job had.
    """
    from peloton.sdk.jobs import TERMINAL_STATES, state_name_of
    from peloton.sdk.render import enum_name, to_dict
    from peloton.sdk.tasks import TaskQuery

    info = peloton.jobs.get(job).jobInfo
    if enum_name(info.config, "type") != "BATCH":
        raise Conflict(f"job {job} is a service: `job stateless start` starts its instances again")
    if state_name_of(info) not in TERMINAL_STATES:
        raise Conflict(f"job {job} has not ended yet")
    found: dict[int, Any] = {}
    offset, total = 0, 1
    while offset < total:
        wanted = TaskQuery(states=FAILED_STATES, page=(offset, PAGE), sort=("instanceId",))
        answer = peloton.tasks.query(job, wanted)
        total, offset = answer.pagination.total, offset + PAGE
        found |= {one.instanceId: to_dict(one.config) for one in answer.records}
    if not found:
        raise Conflict(f"no instance of job {job} has failed")
    spec = to_dict(info.config)
    pool = pool_again(peloton, spec.pop("respoolID")["value"], options=options)
    spec.pop("changeLog", None)
    own = spec.pop("instanceConfig", {})
    labels = [one for one in spec.pop("labels", []) if one["key"] != "retryOf"]
    spec["labels"] = [*labels, {"key": "retryOf", "value": job}]
    spec["instanceCount"] = len(found)
    more = batch.variables(options["environment"])
    spec["instanceConfig"] = {
        at: {
            **with_amounts(own.get(str(number), {}), batch.amounts(options)),
            "command": with_variables(found[number]["command"], more),
            "labels": origin(found[number], number),
        }
        for at, number in enumerate(sorted(found))
    }
    spec["name"] = options["name"] or next_name(peloton, spec["name"])
    batch.put_options(peloton, spec, options=options)
    return spec, pool


def with_amounts(config: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    """Return an instance's own config, in which given amounts replace what it requests."""
    if not given or "resource" not in config:
        return config
    return {**config, "resource": {**config["resource"], **given}}


def with_variables(command: dict[str, Any], more: list[dict[str, str]]) -> dict[str, Any]:
    """Return the command with these variables as well, which take precedence."""
    if not more:
        return command
    names = {one["name"] for one in more}
    known = command.get("environment", {}).get("variables", [])
    others = [one for one in known if one["name"] not in names]
    return {**command, "environment": {"variables": others + more}}


def pool_again(peloton: Client, pool: str, *, options: Mapping[str, Any]) -> str:
    """Return the path of the pool with this id, unless another one was named."""
    if is_given("pool"):
        return str(options["pool"])
    try:
        return str(peloton.pools.get(pool).poolinfo.path.value)
    except NotFound:
        raise NotFound("the pool of the job is gone: name another one with --pool") from None


def origin(config: Any, number: int) -> list[dict[str, str]]:
    """Return the labels of an instance that runs again, with the number that it had at first."""
    others = [one for one in config.get("labels", []) if one["key"] != FIRST_NUMBER]
    return [*others, {"key": FIRST_NUMBER, "value": first_number(config) or str(number)}]


def first_number(config: Any) -> str:
    """Return the number that an instance had at first; empty if it does not run again."""
    return next(
        (one["value"] for one in config.get("labels", []) if one["key"] == FIRST_NUMBER), ""
    )


def numbers_of(spec: Any) -> Callable[[int], int]:
    """Return a function to the number of an instance, from 0; of one that runs again, the first
    number."""
    configs = spec.get("instanceConfig", {})
    return lambda number: int(first_number(configs.get(number, {})) or number)


def next_name(peloton: Client, name: str) -> str:
    """Return the name of a job with `-retry-N` behind it, which no job has."""
    known = RETRY_NAME.sub("", name)
    taken = {one.name for one in peloton.jobs.with_name_like(known)}
    return next(found for at in itertools.count(1) if (found := f"{known}-retry-{at}") not in taken)
