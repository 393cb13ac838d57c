"""Common parts of `run` and `map`: their options, and the spec and the job made of them.

`attend.py` follows the job.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peloton.cli.shared import exits
from peloton.cli.shared.options import API, CliSettings, OwnCommand, is_given
from peloton.cli.shared.output import command, hint
from peloton.cli.shared.session import connected
from peloton.cli.shared.values import megabytes, quantity
from peloton.sdk.addresses import addresses_of, are_local
from peloton.sdk.errors import BadSpec, NotFound

if TYPE_CHECKING:
    from peloton.sdk.client import Client

POOL = "/default"
ATTEMPTS_MAX = 100
INSTANCES_MAX = 100_000
WAIT_LABEL = re.compile(r"labels(?:\[\d+\])?: peloton\.([a-z_]+): ", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
WAIT_OPTIONS = {"name_unique": "unique"}
"""Options whose label has another name."""
SCRIPT_BYTES_MAX = 4 * 1024 * 1024
SCRIPT, FILES = "script", "$PELOTON_KEEPER/files/$PELOTON_JOB_ID/"
"""The name of a script among the files of its job, and where a task finds these."""
FILE_COMMAND = re.compile(r'exec (?:sh )?"\$PELOTON_KEEPER/files/')
PAGE = 1000
"""Instances that are asked for in one call."""
AMOUNTS = {
    "cpuLimit": "cpus", "memLimitMb": "memory_mb", "diskLimitMb": "disk_mb", "gpuLimit": "gpus",
}  # fmt: skip
F = TypeVar("F", bound=Callable[..., Any])


WAITS = (
    click.option(
        "--after", multiple=True, metavar="JOB[:STATE]",
        help="Begin once JOB has SUCCEEDED, or FAILED, KILLED, or ENDED anyhow; if it ends "
        "otherwise, this job is killed. Repeatable.",
    ),
    click.option(
        "--deadline", default="", metavar="TIME",
        help="Kill the job if it has not ended by then: `2h30m` from now, or a moment such as "
        "2030-01-31T18:00:00Z.",
    ),
    click.option(
        "--throttle", default="", metavar="N/UNIT",
        help="Start at most N instances within any second, minute or hour: `10/s`, `200/m`, `5/h`.",
    ),
    click.option(
        "--unique", is_flag=True,
        help="Refuse the job while another of its pool with --unique has its name.",
    ),
    click.option(
        "--notify", default="", metavar="URL",
        help="POST the end of the job to URL, or, as `URL STATE,STATE`, only such an end. The "
        "operator says which URLs may be called.",
    ),
)  # fmt: skip
"""What a job may want of others; labels of the job say it."""


ALONG = (
    click.option(
        "--env", "-E", "environment", multiple=True, metavar="K=V",
        help="Set a variable; `K` alone takes its value from here. Repeatable.",
    ),
    click.option(
        "--env-all", is_flag=True,
        help="Pass every variable if the run is on this machine; everybody who may see the job "
        "sees them.  [default: PATH, VIRTUAL_ENV, CONDA_PREFIX, LD_LIBRARY_PATH, "
        "PYTHONPATH, locale]",
    ),
    click.option("--clean-env", is_flag=True, help="Pass no variables but those of --env."),
)  # fmt: skip
"""What a command gets of the surroundings of its caller."""


def wait_labels(peloton: Client, options: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the labels of these options, with the ids of the jobs that are named."""
    from peloton.cli.shared.names import after_parts, id_of, is_id

    found = {}
    if options["after"]:
        parts = [after_parts(one) for one in options["after"]]
        ids = [id_of(peloton, job) for job, _, _ in parts]
        for one in ids:
            if not is_id(one):
                states = "; behind a colon stands succeeded, failed, killed or ended"
                text = f"--after: {one}: job not found"
                raise NotFound(text + (states if ":" in one else ""))
        ends = (colon + end for _, colon, end in parts)
        found["after"] = ",".join(map("".join, zip(ids, ends, strict=True)))
    if options["deadline"]:
        found["deadline"] = options["deadline"]
    if options["throttle"]:
        found["throttle"] = options["throttle"]
    if options["unique"]:
        found["name_unique"] = "true"
    if options["notify"]:
        found["notify"] = options["notify"]
    return [{"key": f"peloton.{key}", "value": value} for key, value in found.items()]


class BatchCommand(OwnCommand):
    """A command whose words behind the first are the user's own, options and all."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        settings = {"allow_interspersed_args": False, **rest.pop("context_settings", {})}
        super().__init__(*args, context_settings=settings, **rest)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `-j 4` before the command for the number that runs at a time, as GNU parallel
        does."""
        found, _, _ = self.make_parser(ctx).parse_args([*args])
        words = found.get("words")
        # Where there is none, click has a mark of its own.
        before = args[: len(args) - len(words)] if isinstance(words, tuple) else []
        if before[-1:] == ["-j"] and words[0].isdigit():
            raise click.UsageError(
                "-j means --json; limit what runs at a time with --max-parallel N", ctx
            )
        return super().parse_args(ctx, args)


def refuse_misplaced(words: Sequence[str]) -> None:
    """Refuse an option behind the command, of which it would silently become a part."""
    context = click.get_current_context()
    ours = {name for one in context.command.get_params(context) for name in one.opts}
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name in ours:
            text = f"{name} comes after the command and would be a part of it: put options first"
            raise click.UsageError(text)


def is_shell_text(word: str) -> bool:
    """Return whether a first word is a text for the shell rather than the name of a program."""
    return len(word.split()) > 1 and not os.path.exists(word)


def batch_options(function: F) -> F:
    """Add the options of `run` and `map`."""
    for option in reversed(
        (
            click.option("--cpus", type=quantity, help="CPUs per instance. [default: 1]"),
            click.option(
                "--mem", "memory_mb", type=megabytes, metavar="SIZE",
                help="Memory per instance, such as 512m or 4g; a task far above it is killed.  "
                "[default: the share of its cpus in a host's memory]",
            ),
            click.option("--gpus", type=quantity, help="GPUs per instance."),
            click.option("--disk", "disk_mb", type=megabytes, metavar="SIZE", help="Per instance."),
            click.option(
                "--pool", default=POOL, show_default=True, metavar="PATH", help="Resource pool."
            ),
            *ALONG,
            click.option(
                "--retries", type=click.IntRange(0, ATTEMPTS_MAX - 1), default=0,
                help="Retry a failed instance this many times, after 1 s, then 2, 4 … 60 s.",
            ),
            click.option(
                "--preemptible", is_flag=True,
                help="Allow the job to be ended and run again later when others need the room, "
                "and to run beyond the reservation of its pool.",
            ),
            click.option(
                "--max-parallel", type=click.IntRange(1), metavar="N",
                help="Run at most this many at a time.  [default: as many as the pool takes]",
            ),
            click.option("--name", default="", help="Name of the job. [default: the program's]"),
            click.option(
                "--workdir", metavar="DIR",
                help="Folder to run in; `.` for a sandbox of its own.  [default: this folder, "
                "where the cluster is on this machine and has no hosts of Mesos; else a sandbox]",
            ),
            *WAITS,
            click.option(
                "--wait-for-hosts", is_flag=True,
                help="Keep waiting even if no current host or pool limit could fit the job.",
            ),
            click.option("--detach", is_flag=True, help="Print the id of the job, and return."),
            click.option("--dry-run", is_flag=True, help="Print the job as YAML; create nothing."),
            click.option(
                "--local", is_flag=True,
                help="Start a cluster in a temporary folder, and end it with this command.",
            ),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def spec_of(
    peloton: Client, options: Mapping[str, Any], *, name: str, instances: int, here: bool
) -> Any:
    """Return the job without its commands. `here`: its hosts are this machine."""
    config: dict[str, Any] = {"resource": resource_of(peloton, options)}
    found = caller_environment(options, here=here)
    if found:
        config["environment"] = {"variables": pairs_of(found)}
    spec = {
        "name": options["name"] or name,
        **({"owner": peloton.user} if peloton.user else {}),
        "type": "BATCH",
        "instanceCount": instances,
        "defaultConfig": config,
    }
    put_options(peloton, spec, options=options)
    return spec


def put_options(peloton: Client, spec: dict[str, Any], *, options: Mapping[str, Any]) -> None:
    """Put into a job what the options say of it; what they do not name stays."""
    sla, config = spec.get("sla", {}), spec.setdefault("defaultConfig", {})
    most = options["max_parallel"] or int(sla.get("maximumRunningInstances", 0))
    if most:  # the server refuses more than there are instances
        sla["maximumRunningInstances"] = min(most, spec["instanceCount"])
    if options["preemptible"]:
        sla["preemptible"] = True
    if sla:
        spec["sla"] = sla
    config["resource"] = {**config.get("resource", {}), **amounts(options)}
    if options["retries"] or is_given("retries"):
        config["restartPolicy"] = {"maxFailures": options["retries"] + 1}
    labels = wait_labels(peloton, options)
    if labels:
        named = {one["key"] for one in labels}
        others = [one for one in spec.get("labels", []) if one["key"] not in named]
        spec["labels"] = others + labels


def amounts(options: Mapping[str, Any]) -> dict[str, float]:
    """Return what the options say of the resources of an instance."""
    return {key: options[name] for key, name in AMOUNTS.items() if options[name] is not None}


def resource_of(peloton: Client, options: Mapping[str, Any]) -> dict[str, float]:
    """Return what each instance requests; the cluster is asked for what the options do not say."""
    if options["cpus"] is None or options["memory_mb"] is None:
        from peloton.sdk.defaults import task_share

        return task_share(peloton, options["pool"]).resource(options["cpus"])
    return {"cpuLimit": options["cpus"], "diskLimitMb": 0.0}


def variables(given: Sequence[str]) -> list[dict[str, str]]:
    """Return the environment of a command, from K=V or K."""
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or (not equals and name not in os.environ):
            where = "is not of the form K=V" if not name else "is not set here"
            raise click.BadParameter(f"{one!r} {where}", param_hint="--env")
        if not VARIABLE.fullmatch(name):
            text = f"{name!r} is not a name of letters, digits and _: a shell would drop it"
            raise click.BadParameter(text, param_hint="--env")
        if name in found:
            raise click.BadParameter(f"{name} is given twice", param_hint="--env")
        found[name] = value if equals else os.environ[name]
    return pairs_of(found)


def pairs_of(found: Mapping[str, str]) -> list[dict[str, str]]:
    """Return variables as the config of a task has them."""
    return [{"name": name, "value": value} for name, value in found.items()]


def caller_environment(options: Mapping[str, Any], *, here: bool) -> dict[str, str]:
    """Return the variables that are taken along; print those that cannot be."""
    every = options["env_all"]
    if every and options["clean_env"]:
        raise click.UsageError("--env-all and --clean-env: give only one of them")
    if options["clean_env"]:
        return {}
    from peloton.sdk.caller_environment import missed, taken

    if here:
        return taken(os.environ, every=every)
    given = {one.partition("=")[0] for one in options["environment"]}
    names = [name for name in missed(os.environ, every=every) if name not in given]
    if names:
        hint(
            f"not taken along, as the hosts may be other machines: {', '.join(names)}; --env NAME "
            "takes one, --clean-env says that none is needed"
        )
    return {}


def shell_command(text: str, options: Mapping[str, Any], *, folder: str) -> dict[str, Any]:
    """Return a shell's text as the `command` of a config, run in this folder, or in the sandbox."""
    if folder:
        # In the same line, so that the shell counts the lines of the text in its messages.
        text = f"cd {shlex.quote(folder)} || exit {exits.NO_EXIT_CODE}; {text}"
    found: dict[str, Any] = {"shell": True, "value": text}
    if options["environment"]:
        found["environment"] = {"variables": variables(options["environment"])}
    return found


def script_of(file: str) -> bytes:
    """Return what is in a file, or on stdin. Raises BadSpec, OSError."""
    with sys.stdin.buffer if file == "-" else open(file, "rb") as opened:
        data = opened.read(SCRIPT_BYTES_MAX + 1)
    if not data.strip():
        raise BadSpec(f"{file}: the script is empty")
    if len(data) > SCRIPT_BYTES_MAX:
        raise BadSpec(f"{file}: a script has at most {SCRIPT_BYTES_MAX} bytes")
    return data


def file_command(name: str, data: bytes, *, arguments: Sequence[str] = ()) -> str:
    """Return the text by which a shell runs a file of its job: by its first line, or in a shell."""
    program = "exec" if data.startswith(b"#!") else "exec sh"
    path = f'"{FILES}{name}"'
    return " ".join([program, path, *map(shlex.quote, arguments)])


def files_again(spec: Any, job: str) -> str | dict[str, bytes]:
    """Return the files of a job of commands of this job: the same, if a command is a file."""
    commands = [one["command"].get("value", "") for one in spec["instanceConfig"].values()]
    return job if any(map(FILE_COMMAND.search, commands)) else {}


def runs_here(peloton: Client) -> bool:
    """Return whether the hosts are this machine: those of Mesos may be other machines."""
    from peloton.sdk.defaults import has_mesos

    return is_here() and not has_mesos(peloton)


def folder_of(wanted: str | None, *, here: bool) -> str:
    """Return where to run; empty: in the sandbox."""
    if wanted is None:
        return os.getcwd() if here else ""
    if wanted == ".":
        return ""
    return str(Path(wanted).expanduser().absolute())


def is_here() -> bool:
    """Return whether the cluster is on this machine: all its addresses are of loopback."""
    settings = click.get_current_context().ensure_object(CliSettings)
    searched = settings.values.get("zk_servers") or settings.values.get("cluster_name")
    if settings.roles() or (searched and not settings.is_address_chosen):
        return False
    known = addresses_of(settings.values.get("api") or API)
    return are_local(known)


def create(peloton: Client, spec: Any, *, options: Mapping[str, Any]) -> str:
    """Create the job; return its id."""
    if not spec["defaultConfig"].get("command") and not spec.get("instanceConfig"):
        raise BadSpec("there is no command")
    try:
        files = options.get("files") or {}
        made: str = peloton.jobs.create_with(files, options["pool"], config=spec).jobId.value
    except BadSpec as error:
        error.args = (by_option(str(error)),)
        raise
    return made


def by_option(text: str) -> str:
    """Return what the server says of a label, with the option that the user typed."""
    found = WAIT_LABEL.match(text)
    if found is None:
        return text
    return f"--{WAIT_OPTIONS.get(found[1], found[1])}: {text[found.end() :]}"


def client(options: Mapping[str, Any]) -> Any:
    """Return the cluster to run on, as a context manager: a temporary one with --local."""
    if not options["local"]:
        settings = click.get_current_context().ensure_object(CliSettings)
        settings.without_cluster = "; --local starts one for this command only"
        return connected()
    from peloton.cli.jobs.local import local_client

    return local_client()


def next_steps(job: str) -> str:
    return f"{command('job', 'progress', job)}, {command('job', 'stop', job)}"
