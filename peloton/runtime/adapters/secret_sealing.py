"""Sealing of secrets: AES-256 in Galois counter mode, under keys from a file.

Turns a value into a row that is useless without the key, and back. Each value has a random nonce of
its own, and job, id and time of the row are authenticated: a row that is put in another's place
does not open. Errors must not name a key or a value, because they are logged.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from peloton.runtime.ports import BadSeal, SealedSecret

NONCE_BYTES = 12
_KEY_ID_LABEL, _FINGERPRINT_LABEL = b"peloton secrets key id", b"peloton secrets fingerprint"


def key_id(key: bytes) -> str:
    """Return the name of a key, which is stored with what it encrypted."""
    return _derived(key, _KEY_ID_LABEL).hex()[:16]


class AesSealing:
    """A sealing that encrypts with the first key and decrypts with each of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._ciphers = {key_id(key): AESGCM(key) for key in keys}
        self.newest = key_id(keys[0])
        # Of the last key, which a rotation of keys leaves longest: a repeat of a request that was
        # made before has the same print after it.
        self._print_key = _derived(keys[-1], _FINGERPRINT_LABEL)

    def seal(self, job: str, secret: str, *, made: int, data: bytes) -> SealedSecret:
        """Encrypt with the newest key."""
        nonce = os.urandom(NONCE_BYTES)
        box = self._ciphers[self.newest].encrypt(nonce, data, _bound(job, secret, made=made))
        return SealedSecret(job, secret, made, self.newest, nonce + box)

    def unseal(self, row: SealedSecret) -> bytes:
        """Decrypt the value. Raises BadSeal."""
        cipher = self._ciphers.get(row.key_id)
        if cipher is None:
            raise BadSeal(f"secret {row.id}: its key {row.key_id} is not in the key file")
        nonce, box = row.data[:NONCE_BYTES], row.data[NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, box, _bound(row.job, row.id, made=row.made))
        except (InvalidTag, ValueError):
            raise BadSeal(f"secret {row.id}: what is stored was changed or damaged") from None

    def is_newest(self, row: SealedSecret) -> bool:
        """Return whether the row was encrypted with the newest key."""
        return row.key_id == self.newest

    def fingerprint(self, data: bytes) -> bytes:
        """Return a keyed digest: without the key nobody can test guesses against it."""
        return hmac.digest(self._print_key, data, hashlib.sha256)


def _bound(job: str, secret: str, *, made: int) -> bytes:
    """Return the context of a value, with parts kept apart by a separator that no id has."""
    return "\0".join((job, secret, str(made))).encode()


def _derived(key: bytes, label: bytes) -> bytes:
    return hmac.digest(key, label, hashlib.sha256)
