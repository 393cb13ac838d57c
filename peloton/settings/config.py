"""Settings of processes, with their defaults, checked.

Turns options and cluster files into values. Every error names the option or the path in the file
that is wrong.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import platformdirs
import yaml

from peloton.settings import yaml_limits, yaml_lines

GRPC_DEFAULT = "127.0.0.1:5397"
HTTP_DEFAULT = "127.0.0.1:5297"
CLASSIC_PORTS = {"hostmgr": 5391, "jobmgr": 5392, "resmgr": 5394}
HOST_NAME_PREFIX = "peloton-mesos-agent"
RECEIVE_MAX_BYTES = 64 * 1024 * 1024
HOSTS_MAX = 50_000
PORT_MAX = 65_535


class SettingsLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader that refuses a key that is given twice."""


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:
    key = yaml_limits.duplicate_key(node)
    if key is not None:
        line = key.start_mark.line + 1
        raise yaml_limits.BadYaml(f"{key.value} is given twice", line)
    loader.flatten_mapping(node)
    found: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return found


SettingsLoader.add_constructor("tag:yaml.org,2002:map", _mapping)
SAFE = SettingsLoader


class BadSetting(Exception):
    """Settings that cannot be used; each text names one."""

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts)
        self.texts = texts

    def __str__(self) -> str:
        return "\n".join(self.texts)


class HostSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A virtual host: cpus, MB, MB, gpus; and the cpus that revocable jobs get besides."""

    name: str
    cpus: float = 4.0
    memory_mb: float = 2048.0
    disk_mb: float = 20000.0
    gpus: float = 0.0
    attributes: dict[str, str] = {}
    revocable_cpus: float = 0.0


class Address(msgspec.Struct, frozen=True):
    """An address to listen at."""

    host: str
    port: int

    def __str__(self) -> str:
        # An IPv6 address has colons of its own.
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def default_data_dir() -> Path:
    """Return the user's data folder for a minicluster."""
    return Path(platformdirs.user_data_dir("peloton")) / "minicluster"


def ip_address(text: str, option: str) -> Address:
    """Parse HOST:PORT, where the host is localhost or an IP address."""
    host, separator, port = text.rpartition(":")
    host = host.strip("[]")
    if not separator or not (port.isascii() and port.isdigit()):
        raise BadSetting(f"{option}: {text!r} is not HOST:PORT")
    if int(port) > PORT_MAX:
        raise BadSetting(f"{option}: port {port} is not between 0 and {PORT_MAX}")
    try:
        if host != "localhost":
            ipaddress.ip_address(host)
    except ValueError:
        raise BadSetting(f"{option}: {host!r} is not an IP address or localhost") from None
    return Address(host, int(port))


def is_any(host: str) -> bool:
    """Return whether the host stands for all addresses of a machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def loopback(text: str, option: str) -> Address:
    """Parse HOST:PORT on loopback; anything else is refused."""
    address = ip_address(text, option)
    if not is_loopback(address.host):
        raise BadSetting(
            f"{option}: {address.host} is not a loopback address. Everybody who can reach this "
            "port can run commands as you; what is here is for this machine only"
        )
    return address


def hosts_alike(count: int, size: HostSetting, **typed: float) -> list[dict[str, Any]]:
    """Return `count` hosts of one size, except typed amounts, in the form of a file, with the
    customary names."""
    alike = msgspec.to_builtins(msgspec.structs.replace(size, **typed))
    return [alike | {"name": f"{HOST_NAME_PREFIX}{number}"} for number in range(count)]


def read_yaml(path: Path, option: str, *, secret: bool = False) -> Any:
    """Return the parsed content of a YAML file. `option` names the file in errors.

    Errors repeat nothing of a `secret` file.
    """
    load = yaml_limits.load_secret if secret else yaml_limits.load
    try:
        return load(yaml_limits.text_of(path), SAFE)
    except OSError as error:
        raise BadSetting(f"{option}: {path}: {error.strerror}") from error
    except yaml_limits.BadYaml as error:
        raise BadSetting(f"{option}: {path}: {error}") from error


def with_lines(path: Path, texts: Sequence[str]) -> list[str]:
    """Return errors about a file, those about a field of it behind its line."""
    try:
        written = yaml_limits.text_of(path)
        return [yaml_lines.with_line(text, written, loader=SAFE) for text in texts]
    except (OSError, yaml_limits.BadYaml, yaml.YAMLError):
        return [*texts]  # it cannot be read twice, such as a pipe


def host_problems(hosts: Sequence[HostSetting]) -> Iterator[str]:
    """Yield what is wrong: names must be unique and usable, amounts finite and not negative."""
    seen: dict[str, None] = {}
    if not hosts:
        yield "hosts: a cluster needs at least one"
    for number, host in enumerate(hosts):
        if not host.name or "/" in host.name:
            yield f"hosts[{number}].name: {host.name!r} is not a host name"
        if host.name in seen:
            yield f"hosts[{number}].name: duplicate host {host.name!r}"
        seen[host.name] = None
        for field in ("cpus", "memory_mb", "disk_mb", "gpus", "revocable_cpus"):
            amount = getattr(host, field)
            if not 0 <= amount < 1e12:
                yield f"hosts[{number}].{field}: must be ≥ 0 and finite, got {amount}"
        if 0 <= host.gpus < 1e12 and host.gpus % 1:
            yield f"hosts[{number}].gpus: must be a whole number, got {host.gpus}"


def same_port(one: Address, other: Address) -> bool:
    """Return whether only one of them can listen."""
    if one.port != other.port or not one.port:
        return False
    hosts = {"127.0.0.1" if host == "localhost" else host for host in (one.host, other.host)}
    return len(hosts) == 1 or bool(hosts & {"0.0.0.0", "::", ""})
