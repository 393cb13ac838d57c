"""BASIC authentication: the users of a file, what their roles accept, and their passwords.

The file is the original's file of users and roles. Only digests of passwords are kept, so that
memory and logs cannot reveal one; a wrong name is answered as a wrong password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from peloton.gateway.translate.short_names import SHORT
from peloton.runtime.core.principal import PART_LENGTH_MAX

RULE = re.compile(r"(?P<service>[A-Za-z0-9.]+):(?P<method>\*|[A-Za-z0-9]+\*?)")
PATH = re.compile(r"/(?P<service>[A-Za-z0-9_.]+)/(?P<method>[A-Za-z0-9_]+)")
EVERYTHING = "*"
FULL = {short: full for full, short in SHORT.items()}
_NO_DIGEST = bytes(32)
_NO_DIGESTS = _NO_DIGEST, _NO_DIGEST


class BadUsers(Exception):
    """A file of users cannot be used; each text names a mistake."""

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts)
        self.texts = texts


class Rule(NamedTuple):
    """`*`, or one service with a method, with methods of a common prefix, or with all methods."""

    service: str
    method: str

    def matches(self, service: str, method: str) -> bool:
        """Return whether the rule includes a call."""
        if self.service == EVERYTHING:
            return True
        if self.service != service:
            return False
        if self.method.endswith("*"):
            return method.startswith(self.method[:-1])
        return self.method == method


class Role(NamedTuple):
    """What the users of a role may call: what is accepted, less what is rejected."""

    name: str
    accept: tuple[Rule, ...] = ()
    reject: tuple[Rule, ...] = ()

    @property
    def accepts_all(self) -> bool:
        """Return whether users may call everything but what is rejected."""
        return Rule(EVERYTHING, EVERYTHING) in self.accept

    def permits(self, service: str, method: str) -> bool:
        """Return whether users may call this method; a service counts the same under each of its
        names."""
        named = FULL.get(service, service)
        if any(rule.matches(named, method) for rule in self.reject):
            return False
        return any(rule.matches(named, method) for rule in self.accept)


class User(NamedTuple):
    """A caller. The default user has no name."""

    name: str
    role: Role


KnownUser: TypeAlias = tuple[User, tuple[bytes, bytes]]
"""With the digests of two passwords, as both are valid while one takes the place of the other."""


class BasicUsers:
    """The users of one file."""

    def __init__(
        self, users: Mapping[str, KnownUser], *, default: User | None, internal: str
    ) -> None:
        """Take `users` with the digests of their passwords, by name."""
        self._users = users
        self._journaled = {name[:PART_LENGTH_MAX]: user for name, (user, _) in users.items()}
        self._roles = {user.role.name: user.role for user, _ in users.values()}
        if default is not None:
            self._roles[default.role.name] = default.role
        self.default = default
        self.internal = internal

    def permits(self, role: str, path: str) -> bool:
        """Return whether users of this role may call `/SERVICE/METHOD`; False for any other form
        of path."""
        parts = service_and_method(path)
        return parts is not None and self._roles[role].permits(*parts)

    def named(self, name: str) -> User | None:
        """Return the user of this name, or the default user if it is empty; None if there is none.

        `name` is one that was journaled, so of a longer one it is the beginning.
        """
        return self._journaled.get(name) if name else self.default

    def user(self, name: str | None, password: str | None) -> User | None:
        """Return the user; None for a wrong name or password, and if one of both is missing."""
        if name is None and password is None:
            return self.default
        found, digests = self._users.get(name or "", (None, _NO_DIGESTS))
        given = _digest(password or "")
        # Both, and also for a name that nobody has, so that it takes the same time.
        same = [hmac.compare_digest(given, digest) for digest in digests]
        return found if any(same) and name and password else None


def parse_users(raw: Any) -> BasicUsers:
    """Return the users of a parsed file.

    Raises BadUsers with all mistakes, by their places: any value may be a password that was put
    into the wrong field.
    """
    texts = [*_shape_problems(raw)]
    if texts:
        raise BadUsers(*texts)
    roles, role_texts = _roles(raw.get("roles") or [])
    users: dict[str, KnownUser] = {}
    default: list[User] = []
    texts = [*role_texts]
    for number, one in enumerate(raw.get("users") or []):
        at = f"users[{number}]"
        name, password = one.get("username") or "", one.get("password") or ""
        role = roles.get(one.get("role") or "")
        if role is None:
            texts.append(f"{at}.role: there is no such role")
            role = Role("")
        second = one.get("second_password") or ""
        if second and not password:
            texts.append(f"{at}.second_password: only with a password")
        elif bool(name) != bool(password):
            texts.append(f"{at}: username and password go together")
        elif not name:
            default.append(User("", role))
        elif name in users:
            texts.append(f"{at}.username: duplicate user")
        else:
            digests = _digest(password), _digest(second) if second else _NO_DIGEST
            users[name] = (User(name, role), digests)
    if len(default) > 1:
        texts.append("users: more than one default user (without username and password)")
    internal = raw.get("internal_user") or ""
    texts += _internal_problems(internal, users)
    if texts:
        raise BadUsers(*texts)
    return BasicUsers(users, default=default[0] if default else None, internal=internal)


def _roles(listed: list[Any]) -> tuple[dict[str, Role], list[str]]:
    found: dict[str, Role] = {}
    texts = []
    for number, one in enumerate(listed):
        at, name = f"roles[{number}]", one.get("role") or ""
        if not name:
            texts.append(f"{at}.role: must not be empty")
        if name in found:
            texts.append(f"{at}.role: duplicate role")
        rules = {}
        for field in ("accept", "reject"):
            rules[field], wrong = _rules(one.get(field) or [], f"{at}.{field}")
            texts += wrong
        found[name] = Role(name, rules["accept"], rules["reject"])
    return found, texts


def _rules(listed: list[str], at: str) -> tuple[tuple[Rule, ...], list[str]]:
    found, texts = [], []
    for number, text in enumerate(listed):
        rule = RULE.fullmatch(text)
        if text == EVERYTHING:
            found.append(Rule(EVERYTHING, EVERYTHING))
        elif rule is not None:
            service = rule["service"]
            found.append(Rule(FULL.get(service, service), rule["method"]))
        else:
            texts.append(f"{at}[{number}]: is neither * nor SERVICE:METHOD")
    return tuple(found), texts


def _internal_problems(name: str, users: Mapping[str, KnownUser]) -> Iterator[str]:
    """Yield problems of the user that the original's daemons use: it has to be permitted
    everything."""
    if not name:
        yield "internal_user: must be given"
    elif name not in users:
        yield "internal_user: there is no such user"
    else:
        role = users[name][0].role
        if role.accept != (Rule(EVERYTHING, EVERYTHING),) or role.reject:
            yield "internal_user: its role must accept ['*'] only, and reject nothing"


def service_and_method(path: str) -> tuple[str, str] | None:
    """Return the two parts of `/SERVICE/METHOD`, or None for any other text."""
    found = PATH.fullmatch(path)
    return (found["service"], found["method"]) if found is not None else None


FIELDS: dict[str, dict[str, type]] = {
    "users": {"username": str, "password": str, "second_password": str, "role": str},
    "roles": {"role": str, "accept": list, "reject": list},
}


def _shape_problems(raw: Any) -> Iterator[str]:
    """Yield the places that are not mappings, lists or texts as they should be.

    Only places are repeated: any value may be a password.
    """
    if not isinstance(raw, dict):
        yield "must be a mapping with users, roles and internal_user"
        return
    if any(key not in (*FIELDS, "internal_user") for key in raw):
        yield "has a field that is none of users, roles, internal_user"
    if not isinstance(raw.get("internal_user") or "", str):
        yield "internal_user: must be a text"
    for field, fields in FIELDS.items():
        listed = raw.get(field) or []
        if not isinstance(listed, list):
            yield f"{field}: must be a list"
            continue
        for number, one in enumerate(listed):
            yield from _entry_problems(one, f"{field}[{number}]", fields=fields)


def _entry_problems(one: Any, at: str, *, fields: Mapping[str, type]) -> Iterator[str]:
    if not isinstance(one, dict):
        yield f"{at}: must be a mapping"
        return
    for name, value in one.items():
        kind: type | None = fields.get(name)
        if kind is None:
            yield f"{at} has a field that is none of {', '.join(fields)}"
        elif value is not None and not isinstance(value, kind):
            yield f"{at}.{name}: must be a {'list' if kind is list else 'text, in quotes'}"
        elif isinstance(value, list) and any(not isinstance(rule, str) for rule in value):
            yield f"{at}.{name}: must be a list of texts"


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode(errors="surrogatepass")).digest()
