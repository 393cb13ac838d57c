"""Secrets of jobs: `secrets` of a daemon's file.

Turns a file with keys into keys, or into BadSetting, whose text must not quote it: it is logged.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

import msgspec

from peloton.settings.access_files import BadSecretFile, read_secret_file
from peloton.settings.config import BadSetting

SETTING = "secrets.key_file"
KEY_BYTES = 32
KEYS_MAX = 16


class SecretsSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file with the keys; without one there are no secrets."""

    key_file: Path | None = None


def read_keys(path: Path) -> list[bytes]:
    """Return the keys of a file, one a line, in base64: the first encrypts, all decrypt. Raises
    BadSetting."""
    try:
        text = read_secret_file(path)
    except BadSecretFile as error:
        raise BadSetting(f"{SETTING}: {error}") from None
    lines = [(at, line.strip()) for at, line in enumerate(text.splitlines(), 1)]
    given = [(at, line) for at, line in lines if line and not line.startswith("#")]
    if not 1 <= len(given) <= KEYS_MAX:
        raise BadSetting(f"{SETTING}: {path}: {len(given)} keys, there have to be 1 to {KEYS_MAX}")
    keys: list[bytes] = []
    for at, line in given:
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise BadSetting(f"{SETTING}: {path}, line {at}: not {KEY_BYTES} bytes in base64")
        if key in keys:
            raise BadSetting(f"{SETTING}: {path}, line {at}: a key is given twice")
        keys.append(key)
    return keys
