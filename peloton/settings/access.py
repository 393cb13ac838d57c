"""The settings of callers' authentication: passwords, tokens, certificates, and open access.

Values and their checks; the files that they name are read by `access`, but for the permissions,
which are part of the settings. An address beyond loopback is refused while callers need not prove
anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from peloton.settings.config import Address, BadSetting, is_loopback
from peloton.settings.permissions_file import read_access

NOOP, BASIC = "NOOP", "BASIC"


class TlsFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Certificates between daemons, in PEM; without them peers meet on loopback only.

    `server_name` is the name in all certificates, if it is not the address.
    """

    ca: Path
    certificate: Path
    key: Path
    server_name: str = ""


class ClientTls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Certificates for clients, in PEM. With `client_ca` clients have to show one of that."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class AuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How callers prove who they are.

    `type` as of the original: BASIC with its `file` of users and roles, or NOOP: callers prove
    nothing. Without it they need a token, which `token_file` holds; the daemon makes it.
    """

    type: str | None = None
    file: Path | None = None
    plain_text: bool = False
    token_file: Path | None = None


class AccessSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Permissions per pool, and the audit log.

    `file` has the permissions; without one everybody may do everything. The audit log is beside a
    journal in SQLite, or for Cassandra in `audit` beside the config.
    """

    file: Path | None = None
    audit_folder: Path | None = None

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the rules: they are read here, as part of the settings."""
        if self.file is not None:
            try:
                read_access(self.file)
            except BadSetting as error:
                yield from error.texts


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The authentication of callers."""

    auth: AuthSettings = AuthSettings()
    tls: ClientTls | None = None
    open_loopback: bool = False

    @property
    def has_passwords(self) -> bool:
        """Whether callers have passwords."""
        return self.auth.type == BASIC

    @property
    def has_certificates(self) -> bool:
        """Whether callers have certificates."""
        return self.tls is not None and self.tls.client_ca is not None

    @property
    def has_token(self) -> bool:
        """Whether the daemon has a token; if it is open as well, callers need not know it."""
        return not (self.has_passwords or self.has_certificates or self.auth.type == NOOP)

    @property
    def is_open(self) -> bool:
        """Whether callers need not prove anything."""
        unproven = self.auth.type == NOOP or self.open_loopback
        return unproven and not (self.has_passwords or self.has_certificates)

    @property
    def open_by(self) -> str:
        """The setting that opens the daemon."""
        return "listen.open_loopback" if self.open_loopback else "auth.type: NOOP"

    def problems(self) -> Iterator[str]:
        """Yield settings that contradict each other."""
        auth = self.auth
        if auth.type not in (None, NOOP, BASIC):
            yield f"auth.type: {auth.type!r} must be {NOOP} or {BASIC}"
        if self.has_passwords and auth.file is None:
            yield "auth.file: required with auth.type BASIC"
        if auth.file is not None and not self.has_passwords:
            yield "auth.file: only with auth.type BASIC"
        if auth.plain_text and not self.has_passwords:
            yield "auth.plain_text: only with auth.type BASIC"
        if auth.token_file is not None and not self.has_token:
            yield "auth.token_file: not with auth.type, nor with listen.tls.client_ca"
        if self.open_loopback and (self.has_passwords or self.has_certificates):
            what = "auth.type BASIC" if self.has_passwords else "listen.tls.client_ca"
            yield f"listen.open_loopback: not with {what}"

    def problems_of(self, address: Address, field: str) -> Iterator[str]:
        """Yield why clients must not be served at this address, beyond loopback."""
        if is_loopback(address.host):
            return
        at = f"{field}: {address.host} is not a loopback address."
        if self.has_passwords and self.tls is None and not self.auth.plain_text:
            yield (
                f"{at} Passwords would be sent there in clear: give listen.tls, or "
                "auth.plain_text: true where the network is encrypted by other means"
            )
        elif not self.has_passwords and not self.has_certificates:
            yield (
                f"{at} Everybody who can reach this port can run commands as you; give "
                "listen.tls with client_ca, or auth.type BASIC with listen.tls"
            )
