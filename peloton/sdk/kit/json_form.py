"""The values of extensions' kinds as JSON, by the names of their fields: how clients write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from peloton.runtime.kinds import Kind


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
    try:
        return msgspec.json.decode(body or b"{}", type=named[name])
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        raise BadValue(text, field="body" + path.rstrip("`")) from error
    except msgspec.DecodeError as error:
        raise BadValue(f"not JSON: {error}", field="body") from error


def schema_of(kind: Kind) -> str:
    """Return the JSON schema of all that actors of a kind receive, answer and are."""
    classes = [*kind.messages.values(), *kind.queries.values(), *kind.answers.values()]
    _, schemas = msgspec.json.schema_components(classes)
    return msgspec.json.encode({"$defs": schemas}).decode()
