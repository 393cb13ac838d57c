"""The flags that hold for every command, accepted before and after it, as the original did.

`peloton -m host:5392 job get X` and `peloton job get X -m host:5392` are the same; the later one
wins. A flag only fills the settings; connections are opened later.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from peloton.cli.shared.values import timeout
from peloton.sdk.errors import NotFound

PROGRAM = "peloton"
API = "127.0.0.1:5397"
OUTPUTS = ("table", "wide", "json", "yaml", "name")
# The flags that select the cluster: a proposed command repeats those typed now. What
# came from the environment is there the next time as well.
REPEATED = {
    "api": "--api", "jobmgr": "--jobmgr", "resmgr": "--resmgr", "hostmgr": "--hostmgr",
    "cluster_name": "--clusterName", "zk_servers": "--zkservers", "zk_root": "--zkroot",
    "login_file": "--basicAuthConfig", "token_file": "--token-file",
    "username": "--username", "password_file": "--password-file",
    "tls_ca": "--tls-ca", "tls_cert": "--tls-cert", "tls_key": "--tls-key",
}  # fmt: skip


class FindsJobs(Protocol):
    """Returns the ids of what was typed for jobs.

    For a command that `changes` them; `latest`: the newest of each name is meant.
    """

    def __call__(self, typed: Sequence[str], *, changes: bool, latest: bool) -> tuple[str, ...]: ...


@dataclass
class CliSettings:
    """The values of the flags and their sources: a typed flag outranks a default."""

    values: dict[str, Any] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    stdin: str | None = None
    """The text that was read there as a file."""
    job_ids: FindsJobs | None = None
    """Makes ids of what was typed for jobs."""
    active_names: Callable[[str], list[str]] | None = None
    """Finds names of active jobs that begin so, for a shell."""
    without_cluster: str = ""
    """What else this command can do where no cluster answers."""
    own_failure: int | None = None
    """The exit code of every failure of the tool itself, where all others may be a program's."""

    def take(self, name: str, value: Any, *, typed: bool) -> None:
        if typed and name in REPEATED:
            self.typed[REPEATED[name]] = value if isinstance(value, str) else ",".join(value)
        if typed or self.values.get(name) is None:
            self.values[name] = value

    @property
    def output(self) -> str | None:
        """Return the chosen form of output; None: the command's own default."""
        return self.values.get("output") or ("json" if self.values.get("json_") else None)

    def command(self, *args: str) -> str:
        """Return a command line for the same cluster, to be typed next."""
        flags = [part for pair in self.typed.items() for part in pair]
        return shlex.join([*program(), *flags, *args])

    @property
    def is_address_chosen(self) -> bool:
        """Return whether a given address outranks a search in ZooKeeper: a typed flag wins."""
        if "--api" in self.typed:
            return True
        search_typed = any(flag in self.typed for flag in ("--zkservers", "--clusterName"))
        return bool(self.values.get("api") or self.roles()) and not search_typed

    def roles(self) -> dict[str, str]:
        found = {role: self.values.get(role) for role in ("jobmgr", "resmgr", "hostmgr")}
        return {role: address for role, address in found.items() if address}


def program(typed: str | None = None, executable: str = sys.executable) -> list[str]:
    """Return the words that start this program.

    Its name, or how it was started if PATH does not lead to it. `typed` is the first word of the
    command line, `executable` that of Python.
    """
    typed = sys.argv[0] if typed is None else typed
    as_module = typed.endswith(f"/{PROGRAM}/__main__.py")
    if not as_module and not typed.endswith(f"/{PROGRAM}"):  # a part of another program
        return [PROGRAM]
    ours = os.path.join(os.path.dirname(executable), PROGRAM) if as_module else typed
    found = shutil.which(PROGRAM)
    if found is not None and os.path.realpath(found) == os.path.realpath(ours):
        return [PROGRAM]
    return [executable, "-m", PROGRAM] if as_module else [typed]


FORMS = "Print the answer in this form. Default: what the command always prints, mostly a table."


class GlobalFlag(click.Option):
    """A flag that fills the settings and is no argument of the command it was given to."""

    def __init__(self, *names: str, **rest: Any) -> None:
        super().__init__(names, expose_value=False, **rest)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        value = super().process_value(ctx, value)
        source = ctx.get_parameter_source(str(self.name))
        if source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            typed = source is ParameterSource.COMMANDLINE
            ctx.ensure_object(CliSettings).take(str(self.name), value, typed=typed)
        return value


LATEST = GlobalFlag(
    "--latest", is_flag=True, help="Take the newest of several active jobs with the name."
)


def of_the_connection(*, hidden: bool) -> list[click.Option]:
    def shown(*names: str, **rest: Any) -> click.Option:
        return GlobalFlag(*names, hidden=hidden, **rest)

    return [
        shown("--api", envvar="PELOTON_API", metavar="HOST:PORT",
              help="The cluster; with several addresses, a:1,b:2, the next one where one is "
              f"silent. Default: the variable PELOTON_API, or else {API}."),
        shown("--jobmgr", "-m", envvar="JOBMGR_URL", metavar="HOST:PORT", help="Job manager."),
        shown("--resmgr", "-v", envvar="RESMGR_URL", metavar="HOST:PORT", help="Resource manager."),
        shown("--hostmgr", "-u", envvar="HOSTMGR_URL", metavar="HOST:PORT", help="Host manager."),
        shown("--clusterName", "-e", "cluster_name", envvar="CLUSTER_NAME", metavar="NAME",
              help="Find the daemons in the ZooKeeper that clusters.json, in ~/.peloton or "
              "/etc/peloton, has under this name."),
        shown("--zkservers", "-z", "zk_servers", envvar="ZK_SERVERS", multiple=True,
              metavar="HOST:PORT", help="Find the daemons in this ZooKeeper; may be repeated."),
        shown("--zkroot", "zk_root", envvar="ZK_ROOT", metavar="NODE",
              help="Root of that search. Default /peloton."),
        shown("--basicAuthConfig", "login_file", envvar="BASIC_AUTH_CONFIG", metavar="FILE",
              help="YAML with username and password."),
        shown("--username", envvar="PELOTON_USERNAME", metavar="NAME",
              help="Your user name, with --password-file."),
        shown("--password-file", "password_file", envvar="PELOTON_PASSWORD_FILE", metavar="FILE",
              help="File whose first line is the password."),
        shown("--plain-text", "plain_text", envvar="PELOTON_PLAIN_TEXT", is_flag=True,
              help="Send a password to other machines even without TLS."),
        shown("--token-file", "token_file", envvar="PELOTON_TOKEN_FILE", metavar="FILE",
              help="The token of the cluster. One that you run on this machine is found."),
        shown("--tls-ca", "tls_ca", envvar="PELOTON_TLS_CA", metavar="FILE",
              help="Use TLS with this authority of the cluster's certificates, in PEM."),
        shown("--tls-cert", "tls_cert", envvar="PELOTON_TLS_CERT", metavar="FILE",
              help="Your own certificate, with --tls-key."),
        shown("--tls-key", "tls_key", envvar="PELOTON_TLS_KEY", metavar="FILE",
              help="Its key."),
        shown("--timeout", "-t", "timeout_s", envvar="TIMEOUT", type=timeout, metavar="TIME",
              help="Give up a call after this long. Default 20s."),
    ]  # fmt: skip


def of_the_output(*, hidden: bool, short: bool) -> list[click.Option]:
    names = ["--output", "-o"] if short else ["--output"]
    return [
        GlobalFlag(
            "--json", "-j", "json_", is_flag=True, hidden=hidden, help="Print the answer as JSON."
        ),
        GlobalFlag(*names, type=click.Choice(OUTPUTS), help=FORMS),
    ]


def is_given(option: str) -> bool:
    """Return whether an option was typed, and does not have its default value."""
    source = click.get_current_context().get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


@contextmanager
def typed_names(names: Sequence[str], *, ids: Sequence[str] = ()) -> Iterator[None]:
    """Add the name that was typed to an error that a job does not exist."""
    try:
        yield
    except NotFound as error:
        known = any(one in str(error) for one in (*names, *ids))
        if len(names) == 1 and not known:
            error.args = (f"{names[0]}: {error}",)
        raise


class JobName(click.types.StringParamType):
    """A job, by its id or its name; those that are active are completed."""

    def shell_complete(self, *typed: Any, **rest: Any) -> list[CompletionItem]:
        """Return the names of active jobs with the beginning that was typed, the last argument."""
        context, _, incomplete = typed
        find = context.ensure_object(CliSettings).active_names
        if find is None:
            return []
        with context.scope(cleanup=False):
            return [CompletionItem(one) for one in find(incomplete)]


class Globals(click.Command):
    """A command that takes the global flags as well. They are shown at the root only."""

    changes = False
    """Whether it changes something without a `--dry-run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `-o` with a form of output as that, even where `-o` is an offset, as in the
        original."""
        if any({"-o", "--offset"} <= {*one.opts} for one in super().get_params(ctx)):
            args = [
                "--output" if word == "-o" and following in OUTPUTS else word
                for word, following in zip(args, [*args[1:], ""], strict=False)
            ]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Replace names of jobs by ids in arguments called `job` or `jobs`."""
        for name in ("job", "jobs"):
            typed = ctx.params.get(name)
            arguments = [one.name for one in self.params if isinstance(one, click.Argument)]
            if typed and name in arguments:
                single = isinstance(typed, str)
                found = self.job_ids(ctx, (typed,) if single else typed)
                ctx.params[name] = found[0] if single else found
                with typed_names((typed,) if single else typed, ids=found):
                    return super().invoke(ctx)
        return super().invoke(ctx)

    def job_ids(self, ctx: click.Context, typed: Sequence[str]) -> tuple[str, ...]:
        """Return the ids of the jobs that were typed."""
        settings = ctx.ensure_object(CliSettings)
        assert settings.job_ids is not None
        latest = bool(settings.values.get("latest"))
        return settings.job_ids(typed, changes=self.changes_jobs, latest=latest)

    @property
    def changes_jobs(self) -> bool:
        """Return whether the command changes the jobs that it names."""
        names = {one.name for one in self.params}
        return bool(names & {"job", "jobs"}) and (self.changes or "dry_run" in names)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        root = ctx.parent is None
        own = super().get_params(ctx)
        for one in own:
            named = isinstance(one, click.Argument) and one.name in ("job", "jobs")
            if named and one.type is click.STRING:
                one.type = JobName()  # a shell may complete it
        # On some of the original's commands `-o` is an offset or an override.
        taken = {name for one in own for name in one.opts}
        connection = of_the_connection(hidden=not root)
        return [
            *own,
            *([LATEST] if self.changes_jobs else []),
            *(one for one in connection if taken.isdisjoint(one.opts)),
            *of_the_output(hidden=not root, short="-o" not in taken),
        ]


class PelotonCommand(Globals):
    """A command that the original had."""


class ChangingCommand(PelotonCommand):
    """A command that changes a job and has no `--dry-run`."""

    changes = True


class OwnCommand(Globals):
    """A command the original did not have."""
