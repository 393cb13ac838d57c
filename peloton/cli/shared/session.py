"""Opens the client a command works with, and gives refusals the texts of the original.

Only this module makes a client. Failures are not printed here: the text travels in the error to
`main.py`, which ends the program.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared.options import API, CliSettings
from peloton.cli.shared.output import command, hint
from peloton.sdk.addresses import PORT, addresses_of, with_port
from peloton.sdk.errors import BadSpec, NotFound, PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client
    from peloton.sdk.credentials import Credentials, Login


ZK_PORT = 2181
ZK_ROOT = "/peloton"
NO_POOL, EXAMPLE = "notFound", "examples/hello_world_pool.yaml"
CLUSTERS, CLUSTER_FOLDERS = "clusters.json", ("~/.peloton", "/etc/peloton")


@contextmanager
def connected() -> Iterator[Client]:
    """Return the client the flags describe.

    This loads gRPC, so only commands that call the cluster use it.
    """
    settings = click.get_current_context().ensure_object(CliSettings)
    values, roles = settings.values, settings.roles()
    servers = () if settings.is_address_chosen else searched(values)
    api = addresses(values.get("api") or API, "--api")
    roles = {role: addresses(text, f"--{role}") for role, text in roles.items()}
    from peloton.sdk.client import TIMEOUT_S, Client

    about: dict[str, Any] = {
        "roles": roles,
        "timeout_s": values.get("timeout_s", TIMEOUT_S),
        "credentials": credentials(values),
    }
    if servers:
        client = Client.found(servers, root=values.get("zk_root") or ZK_ROOT, **about)
    else:
        client = Client(api, **about)
    client.on_warning(lambda text: hint(f"warning: {text}"))
    with client:
        yield client


def searched(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ZooKeeper servers to ask, if any: those of a named cluster, or those of the
    flag."""
    name = values.get("cluster_name")
    if name:
        return (named_cluster(name),)
    given = values.get("zk_servers") or ()
    servers = tuple(one.strip() for text in given for one in text.split(",") if one.strip())
    try:
        return tuple(with_port(address, ZK_PORT) for address in servers)
    except ValueError as error:
        raise click.UsageError(f"--zkservers: {error}") from None


def named_cluster(name: str) -> str:
    """Return the entry of a cluster in `clusters.json`; the first file that exists counts."""
    # Without a home the name stays as it is, and no file has it.
    files = [Path(os.path.expanduser(folder)) / CLUSTERS for folder in CLUSTER_FOLDERS]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise NotFound(f"cluster {name}: there is no {' and no '.join(map(str, files))}")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        known = {one["clusterName"]: one["zkURL"] for one in data["clusters"]}
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        text = f'{file} must be {{"clusters": [{{"clusterName": ..., "zkURL": ...}}]}}: {error!r}'
        raise BadSpec(text) from None
    if name not in known:
        raise NotFound(f"cluster {name}: {file} knows {', '.join(known) or 'none'}")
    return str(known[name])


def addresses(text: str, option: str) -> str:
    """Return the addresses an option names, each with a port."""
    try:
        found = [with_port(address, PORT) for address in addresses_of(text)]
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None
    if not found:
        raise click.UsageError(f"{option}: no address in {text!r}")
    return ",".join(found)


def login(path: str | None) -> Login | None:
    if not path:
        return None
    from peloton.sdk.credentials import Login
    from peloton.settings.access_files import exposed

    found = read_spec(path, secret=True)
    # Not refused, as a password file is: the original's users have such files.
    text = exposed(Path(path))
    if text:
        hint(f"warning: {text}")
    missing = [name for name in ("username", "password") if not found.get(name)]
    if missing:
        raise BadSpec("must be given", field=missing[0])
    return Login(found["username"], found["password"])


def credentials(values: Mapping[str, Any]) -> Credentials:
    """Return the credentials that the flags and variables name."""
    from peloton.sdk.credentials import ClientTlsFiles, Credentials, login_of

    ca, certificate, key = (values.get(name) or "" for name in ("tls_ca", "tls_cert", "tls_key"))
    if (certificate or key) and not ca:
        raise click.UsageError("--tls-cert and --tls-key need --tls-ca")
    if bool(certificate) != bool(key):
        raise click.UsageError("--tls-cert and --tls-key go together")
    username, password_file = values.get("username"), values.get("password_file")
    if bool(username) != bool(password_file):
        raise click.UsageError("--username and --password-file go together")
    named = login_of(username, password_file) if username and password_file else None
    return Credentials(
        login=named or login(values.get("login_file")),
        token_file=values.get("token_file") or "",
        tls=ClientTlsFiles(ca, certificate, key) if ca else None,
        plain_text=bool(values.get("plain_text")),
    )


def read_spec(path: str, *, secret: bool = False) -> dict[str, Any]:
    """Return a file of keys and values; the client interprets them.

    Errors repeat nothing of a `secret` file.
    """
    from peloton.sdk.yaml_text import load_yaml
    from peloton.settings import yaml_limits

    try:
        text = spec_text(path)
    except yaml_limits.BadYaml as error:
        raise BadSpec(f"{path}: {error}") from None
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}") from None
    try:
        return load_yaml(text, name=path, secret=secret)
    except BadSpec as error:
        if error.field:
            error.args = (f"{path}: {error}",)  # such as a duplicate key
        raise


def spec_text(path: str) -> str:
    """Return the text of a file, or of stdin (`-`), which is read once and kept.

    Raises BadYaml, OSError.
    """
    from peloton.settings import yaml_limits

    if path != "-":
        return yaml_limits.text_of(Path(path))
    settings = click.get_current_context().ensure_object(CliSettings)
    if settings.stdin is None:
        settings.stdin = yaml_limits.text_of(Path("/dev/stdin"))
    return settings.stdin


@contextmanager
def spec_in(path: str) -> Iterator[dict[str, Any]]:
    """Yield the spec in a file; add the file and the line to errors about a field.

    Of several mistakes each is printed, and the last one raised.
    """
    spec = read_spec(path)
    try:
        yield spec
    except BadSpec as first:
        errors = (first, *first.more)
        *texts, text = _placed(path, errors)
        for other in texts:
            hint(other)
        errors[-1].args = (text,)
        raise errors[-1] from None


def _placed(path: str, errors: Sequence[BadSpec]) -> Iterator[str]:
    """Yield the texts of errors, behind the file and the line if one is known."""
    lines = _lines_of(path, [error.field for error in errors])
    for error, line in zip(errors, lines, strict=True):
        where = f"{path}, line {line}: " if line is not None else f"{path}: "
        yield f"{where if error.field else ''}{error}"


def _lines_of(path: str, fields: Sequence[str]) -> list[int | None]:
    """Return the lines of fields; None also if the file cannot be read again, such as a pipe."""
    import yaml

    from peloton.sdk.yaml_text import lines_of
    from peloton.settings import yaml_limits

    unknown: list[int | None] = [None for _ in fields]
    try:
        return lines_of(spec_text(path), fields) if any(fields) else unknown
    except (OSError, yaml_limits.BadYaml, yaml.YAMLError):
        return unknown


@contextmanager
def pool_typed(path: str) -> Iterator[None]:
    """Add how a pool is made to the answer that there is none at this path."""
    try:
        yield
    except NotFound as error:
        if path in str(error) and error.kind == NO_POOL:
            name = path.rpartition("/")[2] or "NAME"
            made = command("respool", "create", path, "FILE")
            error.args = (
                f"{error}; `{made}` makes it: with `name: {name}` alone in the FILE it has the "
                f"limits of its parent, and {EXAMPLE} shows what else there is",
            )
        raise


@contextmanager
def refusal_texts(texts: Mapping[str, str], **names: object) -> Iterator[None]:
    """Replace the texts of refusals of these kinds by those of the original's tool.

    `{m}` in a text is the server's message.
    """
    try:
        yield
    except PelotonError as error:
        template = texts.get(error.kind)
        if template is not None:
            error.args = (template.format(m=error.message, **names),)
        raise
