"""The values of extensions' kinds as JSON, by the names of their fields: how clients write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from peloton.runtime.kinds import Kind
from peloton.sdk.kit.calls import CallAnswered


class BadValue(ValueError):
    """A text that is no value of its class; `field` is the path of what is wrong."""

    def __init__(self, text: str, *, field: str = "") -> None:
        super().__init__(text)
        self.field = field


def to_json(value: Any) -> bytes:
    """Return the fields of a value as a JSON object."""
    return msgspec.json.encode(value)


def from_json(classes: Mapping[int, type], name: str, *, body: bytes) -> Any:
    """Return the value of the class of this name. Raises BadValue; `body` empty: no fields."""
    named = {cls.__name__: cls for cls in classes.values()}
    if name not in named:
        raise BadValue(f"{name!r} is none of {', '.join(sorted(named))}")
    cls = named[name]
    try:
        value: Any = msgspec.json.decode(body or b"{}", type=cls)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        raise BadValue(text, field="body" + path.rstrip("`")) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"not JSON: {error}", field="body") from error
    for path, owner in _strangers(value, msgspec.json.decode(body or b"{}"), path="body"):
        # Stored values may have fields of a later version; a client's are its mistake.
        raise BadValue(f"{type(owner).__name__} has no such field", field=path)
    return value


def _strangers(value: Any, given: Any, *, path: str) -> Iterator[tuple[str, msgspec.Struct]]:
    """Yield the paths of fields that were given and that a struct in the value has not."""
    if isinstance(value, msgspec.Struct) and isinstance(given, dict):
        fields = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        for name, inner in given.items():
            if name in fields:
                yield from _strangers(getattr(value, fields[name]), inner, path=f"{path}.{name}")
            elif name != value.__struct_config__.tag_field:
                yield f"{path}.{name}", value
    elif isinstance(value, tuple) and isinstance(given, list):
        for at, (one, inner) in enumerate(zip(value, given, strict=False)):
            yield from _strangers(one, inner, path=f"{path}[{at}]")
    elif isinstance(value, Mapping) and isinstance(given, dict):
        for (name, one), inner in zip(value.items(), given.values(), strict=False):
            yield from _strangers(one, inner, path=f"{path}.{name}")


def told_classes(kind: Kind) -> dict[int, type]:
    """Return the messages that a client may send: answers to calls are none of them."""
    return {number: cls for number, cls in kind.messages.items() if cls is not CallAnswered}


def schema_of(kind: Kind) -> str:
    """Return the JSON schema of all that actors of a kind receive, answer and are."""
    classes = [*told_classes(kind).values(), *kind.queries.values(), *kind.answers.values()]
    _, schemas = msgspec.json.schema_components(classes)
    return msgspec.json.encode({"$defs": schemas}).decode()
