"""Turns a spec as people write it, once its YAML is read, into a message of the contract.

Keys may be written as the original's files have them (`instancecount`), as JSON has them
(`instanceCount`), as Python people do (`instance_count`) or as the contract does: case and
underscores do not count. Enums are numbers or names. No key is ignored: one that no field has is a
BadSpec with its path. The original ignored it, and the job then ran without what its owner had
asked for.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from peloton.sdk.errors import BadSpec
from peloton.sdk.yaml_text import describe
from peloton.settings.yaml_lines import PART

M = TypeVar("M", bound=Message)

TRUE = ("true", "yes", "on", "y")
FALSE = ("false", "no", "off", "n")
INTEGERS = (
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
)
BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
MISTAKES_MAX = 20
FLOATS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def build(kind: type[M], data: Any) -> M:
    """Return a message from plain Python, or the message itself if it is one already."""
    if isinstance(data, kind):
        return data
    message = kind()
    fill(message, data, path="")
    missing = message.FindInitializationErrors()  # type: ignore[attr-defined]
    if missing:
        raise BadSpec("must be given", field=missing[0])
    return message


@contextmanager
def spelled_as(data: Any) -> Iterator[None]:
    """Translate the place that a server finds wrong into the spelling of the spec it was made
    from."""
    try:
        yield
    except BadSpec as error:
        if error.field and isinstance(data, dict):
            field = spelled(data, error.field)
            raise BadSpec(error.reason, field=field, kind=error.kind) from None
        raise


def spelled(data: Any, path: str) -> str:
    """Return a path of the contract as the writer of `data` has it, as far as it exists there."""
    here = ""
    for part in PART.findall(path):
        if isinstance(data, dict):
            found = [key for key in data if plain(str(key)) == plain(part)]
            here = below(here, found[0] if found else part)
            data = data[found[0]] if found else None
        elif isinstance(data, list | tuple) and part.isdigit():
            here, data = f"{here}[{part}]", data[int(part)] if int(part) < len(data) else None
        elif isinstance(data, list | tuple):
            at = next((at for at, one in enumerate(data) if kind_of(one) == part), None)
            here = f"{here}[{part if at is None else at}]"
            data = None if at is None else data[at]
        else:
            here = below(here, part)
    return here


def kind_of(item: Any) -> Any:
    """Return the name that a server gives to an item of a list: resources of a pool have a kind
    each."""
    return item.get("kind") if isinstance(item, dict) else None


def plain(name: str) -> str:
    """Return a key in lower case and without underscores."""
    return name.replace("_", "").lower()


def below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def fill(message: Any, data: Any, *, path: str) -> None:
    if not isinstance(data, dict):
        raise BadSpec(f"expected keys and values, found {describe(data)}", field=path)
    keys = SpecKeys(message.DESCRIPTOR)
    wrong: list[BadSpec] = []
    for key, value in data.items():
        try:
            one = SpecValue(value, below(path, key))
            field = keys.field(key, one.path)
            if value is not None:
                put(message, field, value=one)
        except BadSpec as error:
            wrong += [error, *error.more]
            if len(wrong) >= MISTAKES_MAX:
                break
    if wrong:
        wrong[0].more = tuple(wrong[1:MISTAKES_MAX])
        raise wrong[0]


class SpecKeys:
    """The keys of one message: each names a field, and none comes twice."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor
        self._fields = {plain(field.name): field for field in descriptor.fields}
        self._seen: dict[str, Any] = {}

    def field(self, key: Any, path: str) -> Any:
        """Return the field of a key."""
        name = plain(str(key))
        if name not in self._fields:
            raise BadSpec(unknown(str(key), self._descriptor), field=path)
        if name in self._seen:
            raise BadSpec(f"given twice, once as {self._seen[name]}", field=path)
        self._seen[name] = key
        return self._fields[name]


OTHER_KIND = {
    ("api.v1alpha.job.stateless.JobSpec", "defaultconfig"): "this is a config of v0, for "
    "`peloton job create` and `update create`",
    ("api.v0.job.JobConfig", "defaultspec"): "this is a spec of v1alpha, for "
    "`peloton job stateless create` and `replace`",
}
"""What a file is that has a key of the other kind of job files."""


def unknown(key: str, descriptor: Any) -> str:
    for (kind, name), text in OTHER_KIND.items():
        if plain(key) == name and descriptor.full_name.endswith(kind):
            return f"no such key: {text}"
    names = {plain(field.name): field.name for field in descriptor.fields}
    near = difflib.get_close_matches(plain(key), list(names), n=1, cutoff=0.6)
    if near:
        return f"no such key, did you mean {names[near[0]]}?"
    return f"no such key, there is {', '.join(sorted(names.values()))}"


class SpecValue:
    """A value and the path it was found under; converts itself to the type of a field."""

    def __init__(self, raw: Any, path: str) -> None:
        self.raw = raw
        self.path = path

    def wrong(self, wanted: str) -> BadSpec:
        return BadSpec(f"expected {wanted}, found {describe(self.raw)}", field=self.path)

    def scalar(self, field: Any) -> Any:
        kind = field.cpp_type
        if kind in INTEGERS:
            return self.integer()
        if kind in FLOATS:
            return self.number()
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self.boolean()
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return self.enum(field.enum_type)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.data()
        if not isinstance(self.raw, str):
            raise self.wrong("a text")
        return self.raw

    def integer(self) -> int:
        match self.raw:
            case bool():
                pass
            case int():
                return self.raw
            case float() if self.raw.is_integer():
                return int(self.raw)
            case str():
                text = self.raw.replace("_", "")
                # A leading zero is octal to YAML 1.1, and so to the original.
                octal = len(text) > 1 and text[0] == "0" and text[1:].isdigit()
                try:
                    return int(text, 8 if octal else 0)
                except ValueError:
                    pass
        raise self.wrong("a whole number")

    def number(self) -> float:
        if isinstance(self.raw, int | float | str) and not isinstance(self.raw, bool):
            try:
                return float(self.raw)
            except ValueError:
                pass
        raise self.wrong("a number")

    def boolean(self) -> bool:
        if isinstance(self.raw, bool):
            return self.raw
        text = self.raw.lower() if isinstance(self.raw, str) else ""
        if text in TRUE or text in FALSE:
            return text in TRUE
        raise self.wrong("true or false")

    def enum(self, kind: Any) -> int:
        names: dict[str, int] = {value.name.lower(): value.number for value in kind.values}
        names |= short_names(names)
        if isinstance(self.raw, str) and self.raw.lower() in names:
            return names[self.raw.lower()]
        try:
            number = self.integer()
        except BadSpec:
            number = -1
        if number not in names.values():
            known = [value for value in kind.values if not means_nothing(value)]
            raise self.wrong("one of " + ", ".join(f"{v.name} ({v.number})" for v in known))
        return number

    def data(self) -> bytes:
        try:
            match self.raw:
                case bytes():
                    return self.raw
                case str():
                    return base64.b64decode(self.raw, validate=True)
                case [*items]:
                    return bytes(int(item) for item in items)
        except (binascii.Error, ValueError, TypeError):
            pass
        raise self.wrong("bytes, as base64 or as a list of numbers")


def short_names(names: dict[str, int]) -> dict[str, int]:
    """Return the same values without the words that all their names begin with, up to an
    underscore."""
    common = os.path.commonprefix([*names]).rpartition("_")
    return {name.removeprefix(common[0] + common[1]): number for name, number in names.items()}


def means_nothing(value: Any) -> bool:
    """Return whether an enum has this number for what is not given."""
    return value.number == 0 and ("UNKNOWN" in value.name or "INVALID" in value.name)


def put(message: Any, field: Any, *, value: SpecValue) -> None:
    if is_map(field):
        put_map(getattr(message, field.name), field, value=value)
    elif field.is_repeated:
        if not isinstance(value.raw, list | tuple):
            raise value.wrong("a list")
        target = getattr(message, field.name)
        for index, item in enumerate(value.raw):
            one = SpecValue(item, f"{value.path}[{index}]")
            if field.message_type:
                fill(target.add(), item, path=one.path)
            else:
                guarded(one, lambda one=one: target.append(one.scalar(field)), field=field)
    elif field.message_type:
        target = getattr(message, field.name)
        # An empty message that was written is not an absent one.
        target.SetInParent()
        fill(target, value.raw, path=value.path)
    else:
        guarded(value, lambda: setattr(message, field.name, value.scalar(field)), field=field)


def is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def put_map(target: Any, field: Any, *, value: SpecValue) -> None:
    if not isinstance(value.raw, dict):
        raise value.wrong("keys and values")
    key_field = field.message_type.fields_by_name["key"]
    value_field = field.message_type.fields_by_name["value"]
    for raw_key, raw in value.raw.items():
        one = SpecValue(raw, below(value.path, raw_key))
        key = SpecValue(raw_key, one.path).scalar(key_field)
        if raw is None:
            raise one.wrong("a value")
        if value_field.message_type:
            write = lambda key=key, one=one: fill(target[key], one.raw, path=one.path)  # noqa: E731
            guarded(SpecValue(raw_key, one.path), write, field=key_field)
        else:
            scalar = one.scalar(value_field)
            write = lambda key=key, scalar=scalar: target.__setitem__(key, scalar)  # noqa: E731
            guarded(one, write, field=value_field)


def guarded(value: SpecValue, write: Any, *, field: Any) -> None:
    """Write a value; a number too large for its field is the writer's mistake, not a crash."""
    try:
        write()
    except (ValueError, OverflowError) as error:
        bounds = BOUNDS.get(field.cpp_type)
        if bounds is None or isinstance(error, UnicodeError):
            raise BadSpec(str(error), field=value.path) from None
        low, high = bounds
        text = f"{value.raw} is not between {low} and {high}"
        raise BadSpec(text, field=value.path) from None
