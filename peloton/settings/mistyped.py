"""Errors in the form of a parsed file, by the path of its field.

Turns plain data into records, or the decoder's error into BadSetting; an unknown key gets the
nearest known one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import msgspec.inspect

from peloton.settings.config import BadSetting

_PART = re.compile(r"[^.\[\]]+")
_UNKNOWN = re.compile("Object contains (unknown field `([^`]*)`)")
_TYPES = re.compile(r"`([a-z |]+)`")
_YAML_TERMS = {
    "str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "keys and values", "null": "nothing",
}  # fmt: skip
SettingKind = TypeVar("SettingKind")


def converted(
    raw: Any, kind: type[SettingKind], *, dec_hook: Callable[[type, Any], Any] | None = None
) -> SettingKind:
    """Return the value. Raises BadSetting with the first error."""
    try:
        return msgspec.convert(raw, kind, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        # `$.a.b` at the end becomes `a.b:` at the beginning, as in all other errors.
        what, _, path = str(error).partition(" - at `$")
        where = path.strip("`.")
        unknown = _UNKNOWN.match(what)
        if unknown is not None:
            known = _fields(kind, where)
            near = difflib.get_close_matches(unknown[2], known, n=1)
            meant = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
            what = f"{unknown[1]}, {meant}"
        elif what.startswith("Expected"):
            what = "e" + _TYPES.sub(_terms, what[1:])
        what = what.removeprefix("Object ")
        raise BadSetting(f"{where}: {what}" if where else what) from None


def _terms(types: re.Match[str]) -> str:
    return " or ".join(
        _YAML_TERMS.get(one, one) for one in types[1].removesuffix(" | null").split(" | ")
    )


def _fields(kind: Any, where: str) -> list[str]:
    """Return the fields of the record at a path."""
    here = [msgspec.inspect.type_info(kind)]
    for part in _PART.findall(where):
        here = [below for one in _each(here) for below in _below(one, part)]
    return [field.encode_name for one in _each(here) for field in getattr(one, "fields", ())]


def _each(kinds: list[Any]) -> list[Any]:
    """Return the types of a union."""
    return [one for kind in kinds for one in getattr(kind, "types", (kind,))]


def _below(kind: Any, part: str) -> list[Any]:
    """Return the types that may stand at a key or an index."""
    if isinstance(kind, msgspec.inspect.ListType):
        return [kind.item_type]
    if isinstance(kind, msgspec.inspect.DictType):
        return [kind.value_type]
    return [one.type for one in getattr(kind, "fields", ()) if one.encode_name == part]
