"""The files that a task wants fetched into its sandbox before it begins.

The newer form becomes the older one, and both become records. The code that fetches knows more
kinds of addresses than are known here, so those are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from peloton.actors.host.run_spec import Uri
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v1alpha.pod.apachemesos import apachemesos_pb2 as apachemesos
from peloton.gateway.translate.bad_field import BadField

URIS_MAX = 100
URI_CHARS_MAX = 4096


def uris_of(sent: mesos.CommandInfo) -> tuple[Uri, ...]:
    """Return the records of a command's files; raises BadField."""
    if len(sent.uris) > URIS_MAX:
        raise BadField("uris", f"{len(sent.uris)} files, the limit is {URIS_MAX}")
    return tuple(_uri(one, f"uris[{at}]") for at, one in enumerate(sent.uris))


def older_uris(sent: Iterable[apachemesos.PodSpec.URI]) -> Iterator[mesos.CommandInfo.URI]:
    """Yield the files in the form of v0, where `extract` is the default."""
    for one in sent:
        yield mesos.CommandInfo.URI(**_fields(one))


def newer_uris(sent: Iterable[mesos.CommandInfo.URI]) -> Iterator[apachemesos.PodSpec.URI]:
    """Yield the files in the newer form."""
    for one in sent:
        yield apachemesos.PodSpec.URI(**_fields(one))


def _fields(sent: mesos.CommandInfo.URI | apachemesos.PodSpec.URI) -> dict[str, Any]:
    """Return the fields, which both forms have, with different defaults."""
    return {
        "value": sent.value,
        "executable": sent.executable,
        "extract": sent.extract,
        "cache": sent.cache,
        "output_file": sent.output_file,
    }


def _uri(sent: mesos.CommandInfo.URI, field: str) -> Uri:
    value, name = sent.value, sent.output_file
    if not value or len(value) > URI_CHARS_MAX or not value.isprintable():
        text = f"must have 1 to {URI_CHARS_MAX} printable characters, got {value[:100]!r}"
        raise BadField(f"{field}.value", text)
    if name and not _is_inside(name):
        raise BadField(f"{field}.output_file", f"must be a path in the sandbox, got {name[:100]!r}")
    return Uri(value, sent.executable, sent.extract, sent.cache, name)


def _is_inside(path: str) -> bool:
    parts = path.split("/")
    plain = len(path) <= URI_CHARS_MAX and path.isprintable()
    return plain and not any(part in ("", ".", "..") for part in parts)
