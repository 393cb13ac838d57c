"""The file of permissions: the rights of users on pools.

Turns a YAML file into rules, and every mistake into a text with the file, the line and the key.

The rules are a file of the operator's own and no part of a pool's config: a user who may change a
pool must not be able to let himself into it, the rules have to hold for pools that do not exist
yet, and they have to be readable before the journal is.

    pools:
      /:         {administer: ["role:admin"], see: ["*"]}
      /ml:       {submit: [ann, "role:ml"], stop: [ann]}
    kinds:
      lock:      {submit: ["role:ml"], see: ["*"]}

Actors of an extension's kind are told by who may `submit`, and asked and followed by who may `see`;
of a kind without a rule only those who administer the root may do either.

Each permission of a pool is that of the nearest pool at or above it that names it; one that none
names is nobody's.
"""

from __future__ import annotations

import difflib
import enum
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from peloton.settings import yaml_limits
from peloton.settings.config import SAFE, BadSetting

EVERYBODY, ROLE = "*", "role:"
ROOT_PATH = "/"
BYTES_MAX = 1024 * 1024
MISTAKES_SHOWN_MAX = 100
NAME_LENGTH_MAX = 127
"""Longer names are cut where they are journaled, so they cannot be told from each other."""
PATH = re.compile(r"/|(?:/[^/]+)+")
_OTHERS_WRITE = 0o022
TEXT_TAG, LINE_FIRST = "tag:yaml.org,2002:str", 1


class Permission(enum.StrEnum):
    """A permission. `administer` includes the others, and `stop` includes `see`."""

    SUBMIT = "submit"
    STOP = "stop"
    SEE = "see"
    ADMINISTER = "administer"


FIELDS = ("pools", "kinds")
PERMISSIONS = (*(each.value for each in Permission),)
FILE_OPTION = "access.file"
OF_KIND = "kind:"
KIND = re.compile(r"[a-z][a-z0-9_]{0,30}", re.ASCII)
PoolRules = Mapping[str, Mapping[Permission, frozenset[str]]]
"""By the path of a pool, or `kind:` and a kind: the names, roles or `*` of each permission that is
named there."""


def read_access(path: Path) -> PoolRules:
    """Return the rules of a file. Raises BadSetting with all that is wrong."""
    return parse_access(access_text(path), f"{FILE_OPTION}: {path}")


def access_text(path: Path) -> str:
    """Return the text of a file that nobody but its owner, which is us or root, can change.

    Raises BadSetting.
    """
    where = f"{FILE_OPTION}: {path}"
    try:
        found = path.stat()
        if found.st_uid not in (0, os.geteuid()):
            text = f"it belongs to user {found.st_uid}, who could change permissions: chown it"
            raise BadSetting(f"{where}: {text}")
        if found.st_mode & _OTHERS_WRITE:
            mode = stat.S_IMODE(found.st_mode)
            text = f"other users can change permissions (mode {mode:04o}): chmod go-w it"
            raise BadSetting(f"{where}: {text}")
        if found.st_size > BYTES_MAX:
            raise BadSetting(f"{where}: larger than {BYTES_MAX // 1024} KiB")
        return yaml_limits.text_of(path)
    except OSError as error:
        raise BadSetting(f"{where}: {error.strerror}") from error
    except yaml_limits.BadYaml as error:
        raise BadSetting(f"{where}: {error}") from error


def parse_access(text: str, where: str) -> PoolRules:
    """Return the rules of a text. Raises BadSetting with all that is wrong, each behind `where`."""
    try:
        yaml_limits.check(text, SAFE)
        top = yaml.compose(text, SAFE)
    except yaml_limits.BadYaml as error:
        raise BadSetting(f"{where}: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + LINE_FIRST}: " if mark else ""
        raise BadSetting(f"{where}: {line}not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadSetting(f"{where}: not YAML: {error}") from None
    reader = _Reader()
    found = reader.file(top)
    if reader.texts:
        shown = reader.texts[:MISTAKES_SHOWN_MAX]
        raise BadSetting(*(f"{where}: {one}" for one in shown))
    return found


class _Reader:
    """Goes through the nodes of a file and collects what is wrong."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def file(self, top: Any) -> PoolRules:
        if top is None:
            self.texts.append("expected keys and values, found an empty file")
            return {}
        found: dict[str, Mapping[Permission, frozenset[str]]] = {}
        for name, key, value in self._entries(top, "the file"):
            if name not in FIELDS:
                self._wrong(key, f"unknown field `{name}`, {_meant(name, FIELDS)}")
                continue
            for path, at, rules in self._entries(value, name):
                if name == "kinds":
                    if KIND.fullmatch(path) is None:
                        self._wrong(at, f"kinds: {path!r} is not the name of a kind")
                    found[OF_KIND + path] = self._rules(f"kinds.{path}", rules)
                    continue
                if PATH.fullmatch(path) is None:
                    self._wrong(at, f"pools: {path!r} is not the path of a pool{_path_meant(path)}")
                found[path] = self._rules(f"pools.{path}", rules)
        if not self.texts and Permission.ADMINISTER not in found.get(ROOT_PATH, {}):
            text = "pools./: missing required field `administer`: hosts, calls of operators"
            self._wrong(top, f"{text} and pools without a rule need somebody")
        return found

    def _rules(self, where: str, node: Any) -> Mapping[Permission, frozenset[str]]:
        found: dict[Permission, frozenset[str]] = {}
        for name, key, value in self._entries(node, where):
            if name in PERMISSIONS:
                found[Permission(name)] = self._names(f"{where}.{name}", value)
            else:
                text = f"unknown permission `{name}`, {_meant(name, PERMISSIONS)}"
                self._wrong(key, f"{where}: {text}")
        return found

    def _names(self, where: str, node: Any) -> frozenset[str]:
        names: list[str] = []
        if not isinstance(node, yaml.SequenceNode):
            self._wrong(node, f"{where}: expected a list, found {_shown(node)}")
            return frozenset()
        for number, one in enumerate(node.value):
            at = f"{where}[{number}]"
            if not isinstance(one, yaml.ScalarNode) or one.tag != TEXT_TAG:
                self._wrong(one, f"{at}: expected a text, found {_shown(one)}")
                continue
            name = str(one.value)
            if name in names:
                self._wrong(one, f"{at}: {name!r} is given twice")
            elif name in ("", ROLE):
                self._wrong(one, f"{at}: {name!r} is not a name, {ROLE}ROLE or {EVERYBODY!r}")
            elif len(name.removeprefix(ROLE)) > NAME_LENGTH_MAX:
                text = f"{len(name)} characters, the limit is {NAME_LENGTH_MAX}"
                self._wrong(one, f"{at}: {text}")
            names.append(name)
        return frozenset(names)

    def _entries(self, node: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
        """Yield the keys of a mapping as texts, with their nodes and values."""
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"{where}: expected keys and values, found {_shown(node)}")
            return
        twice = yaml_limits.duplicate_key(node)
        if twice is not None:
            self._wrong(twice, f"{where}: `{twice.value}` is given twice")
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag == TEXT_TAG:
                yield str(key.value), key, value
            else:
                self._wrong(key, f"{where}: expected a text as key, found {_shown(key)}")

    def _wrong(self, node: Any, text: str) -> None:
        self.texts.append(f"line {node.start_mark.line + LINE_FIRST}: {text}")


def _meant(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"


def _path_meant(path: str) -> str:
    better = "/" + "/".join(part for part in path.split("/") if part)
    return f": write `{better}`"


def _shown(node: Any) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value) if node.value else "nothing"
    return "a list" if isinstance(node, yaml.SequenceNode) else "keys and values"
