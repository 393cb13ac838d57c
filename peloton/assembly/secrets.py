"""The secrets of a daemon: its keys, and the store beside its journal.

Turns settings into a vault, or into `CannotStart` with the name of the setting. Without a file with
keys there is none, and its libraries are not imported. Errors must not name a key, because they are
logged.
"""

from __future__ import annotations

from collections.abc import Iterator

from peloton.assembly.servers import cassandra_settings
from peloton.failures import CannotStart
from peloton.runtime.adapters.claimed_folder import SECRETS_FILE
from peloton.runtime.adapters.sqlite_secrets import SqliteSecrets
from peloton.runtime.ports import JournalError, SecretStore
from peloton.runtime.shells.secret_vault import SecretVault
from peloton.settings.config import BadSetting
from peloton.settings.daemon import DaemonSettings
from peloton.settings.secrets import read_keys


def keys_of(settings: DaemonSettings) -> list[bytes]:
    """Return the keys; none if there are no secrets. Raises CannotStart."""
    if settings.secrets.key_file is None:
        return []
    try:
        return read_keys(settings.secrets.key_file)
    except BadSetting as error:
        raise CannotStart(str(error)) from error


def key_problems(settings: DaemonSettings) -> Iterator[str]:
    """Yield what is wrong with the keys."""
    try:
        keys_of(settings)
    except CannotStart as error:
        yield str(error)


def open_vault(settings: DaemonSettings, keys: list[bytes]) -> SecretVault | None:
    """Return the vault of secrets; the journal has been opened before. Raises CannotStart."""
    if not keys:
        return None
    from peloton.runtime.adapters.secret_sealing import AesSealing

    try:
        return SecretVault(_store(settings), AesSealing(keys))
    except JournalError as error:
        raise CannotStart(f"secrets: {error}") from error


def _store(settings: DaemonSettings) -> SecretStore:
    journal = settings.journal
    if journal.cassandra is None:
        assert journal.sqlite is not None
        return SqliteSecrets(journal.sqlite.folder / SECRETS_FILE)
    from peloton.runtime.adapters import cassandra_session
    from peloton.runtime.adapters.cassandra_secrets import CassandraSecrets

    longest_s = cassandra_session.CONNECT_TIMEOUT_S
    return CassandraSecrets.open(cassandra_settings(journal.cassandra, connect_s=longest_s))
