"""Finds every type error of a parsed file, not only the first.

Turns plain data into records. The decoder stops at the first error, so that value is replaced by a
guess of the right type, and the data is decoded again. It must not let a guess out: if there is any
error, the records serve only to find more errors.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import msgspec.inspect

MISTAKES_MAX = 100
"""The most type errors reported for one file."""
PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
NAMED = re.compile(r"Object (?:missing required|contains unknown) field `([^`]*)`")
EXPECTED = re.compile(r"Expected (?:`(\w+)|a path)")
_NOTHING = msgspec.inspect.NoneType
GUESSES: dict[str, Any] = {"str": "", "int": 1, "float": 1.0, "bool": False, "path": "x"}
GUESSES |= {"array": [], "object": {}}
GOT = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
YAML_TERMS = {
    "str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "keys and values", "null": "nothing",
}  # fmt: skip

SettingKind = TypeVar("SettingKind")


def converted(
    raw: Any, kind: type[SettingKind], *, dec_hook: Callable[[type, Any], Any] | None = None
) -> tuple[SettingKind | None, list[str], list[str]]:
    """The value, the type errors, and the fields whose values were guessed.

    The value is None if no guess helped.
    """
    raw = copy.deepcopy(raw)
    texts: list[str] = []
    guessed: list[str] = []
    for _ in range(MISTAKES_MAX):
        try:
            return msgspec.convert(raw, kind, dec_hook=dec_hook), texts, guessed
        except msgspec.ValidationError as error:
            text = _plain(str(error))
        if not is_guessed(text, guessed):
            texts.append(_worded(text, raw, kind=kind))
        where, what = _split(text)
        if not _guess(raw, where, what=what, guessed=guessed):
            break
    return None, texts, guessed


def _guess(raw: Any, where: str, *, what: str, guessed: list[str]) -> bool:
    """Replace the value by one of the right type; False if that is impossible."""
    where = where.partition("[...]")[0]  # a value of a mapping; its key is not in the error
    parts = [int(n) if n else name for name, n in PART.findall(where)]
    name = NAMED.search(what)
    if name is not None:
        at = _at(raw, parts)
        if not isinstance(at, dict):
            return False
        if "unknown" in what:
            at.pop(name[1], None)
        else:
            at[name[1]] = ""
            guessed.append(f"{where}.{name[1]}".lstrip("."))
        return True
    expected = EXPECTED.search(what)
    above = _at(raw, parts[:-1])
    if expected is None or not parts or not isinstance(above, dict | list):
        return False
    above[parts[-1]] = copy.deepcopy(GUESSES.get(expected[1] or "path", {}))
    guessed.append(where)
    return True


def _worded(text: str, raw: Any, *, kind: Any) -> str:
    """An error of the decoder in terms of YAML, with what was probably meant."""
    where, what = _split(text)
    prefix = f"{where}: " if where else ""
    parts = [int(n) if n else name for name, n in PART.findall(where)]
    name = NAMED.search(what)
    if name is not None and "unknown" in what:
        known = _fields(kind, parts)
        near = difflib.get_close_matches(name[1], known, n=1, cutoff=0.6)
        meant = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
        return f"{prefix}unknown field `{name[1]}`, {meant}"
    if name is not None:
        return f"{prefix}missing required field `{name[1]}`"
    got = GOT.fullmatch(what)
    if got is None:
        return text
    wanted = [YAML_TERMS.get(one, one) for one in got[1].split(" | ") if one != "null"]
    # The key of a value in a mapping is not in the error, so the value cannot be shown.
    value = _at(raw, parts) if "[...]" not in where else None
    is_shown = isinstance(value, str | int | float)
    found = repr(value) if is_shown else YAML_TERMS.get(got[2], got[2])
    if not where and raw is None:
        found = "an empty file"
    return f"{prefix}expected {' or '.join(wanted)}, found {found}"


def _fields(kind: Any, parts: list[Any]) -> list[str]:
    """The fields of the record at a path."""
    here = msgspec.inspect.type_info(kind)
    for part in parts:
        here = _record(here, listed=isinstance(part, int))
        if isinstance(here, msgspec.inspect.StructType):
            of_name = {field.encode_name: field.type for field in here.fields}
            here = of_name.get(part, here)
        elif isinstance(here, msgspec.inspect.ListType):
            here = here.item_type
        elif isinstance(here, msgspec.inspect.DictType):
            here = here.value_type
    here = _record(here)
    return [one.encode_name for one in getattr(here, "fields", ())]


def _record(kind: Any, *, listed: bool = False) -> Any:
    """Of an optional value the value; of one that may be a list or not, the one of both."""
    some = [one for one in getattr(kind, "types", ()) if not isinstance(one, _NOTHING)]
    lists = [one for one in some if isinstance(one, msgspec.inspect.ListType)]
    return next(iter(lists if listed and lists else some), kind)


def _at(raw: Any, parts: list[Any]) -> Any:
    for part in parts:
        try:
            raw = raw[part]
        except (LookupError, TypeError):
            return None
    return raw


def is_guessed(text: str, guessed: list[str]) -> bool:
    """Whether an error is about a guessed value."""
    where = _split(text)[0]
    return any(where == one or where.startswith((f"{one}.", f"{one}[")) for one in guessed)


def _split(text: str) -> tuple[str, str]:
    """The field of an error, and the rest of its text."""
    where, separator, what = text.partition(": ")
    return (where, what) if separator and " " not in where else ("", text)


def _plain(text: str) -> str:
    """`$.a.b` at the end becomes `a.b:` at the beginning, as in all other errors."""
    what, separator, where = text.rpartition(" - at `$")
    if not separator:
        return text
    where = where.rstrip("`").lstrip(".")
    return f"{where}: {what}" if where else what
