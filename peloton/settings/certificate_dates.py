"""The end dates of certificates, for warnings that are clearer than "Socket closed".

Turns files in PEM into dates, and dates and a moment into warnings. A file that cannot be read is
left out: its user reports why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

SOON_DAYS = 14
"""An end that is nearer is told."""
_AUTHORITIES = ("ca", "client_ca", "ca_file")
FIELDS = ("certificate", *_AUTHORITIES)
"""The last parts of the names of settings that name such files."""


class CertificateDates(NamedTuple):
    """The validity of the certificates of one file.

    Of a file with several authorities it is that of the one that is good for longest.
    """

    name: str
    file: Path
    begins: datetime
    ends: datetime

    def is_good(self, now: datetime) -> bool:
        return self.begins <= now <= self.ends

    def text(self, now: datetime) -> str:
        """Return the warning; empty if the certificate is good for more than `SOON_DAYS`."""
        if now < self.begins:
            return f"{self.name}: {self.file} is good only from {_shown(self.begins)} on"
        if now > self.ends:
            return f"{self.name}: {self.file} expired on {_shown(self.ends)}"
        days = (self.ends - now) / timedelta(days=1)
        if days > SOON_DAYS:
            return ""
        return f"{self.name}: {self.file} expires on {_shown(self.ends)}, in {days:.1f} days"


def dates_of(files: Mapping[str, Path]) -> tuple[CertificateDates, ...]:
    """Return the dates of files with certificates, by the names of their settings."""
    return tuple(found for name, file in files.items() for found in _dates(name, file))


def texts_now(dates: tuple[CertificateDates, ...], *, good: bool | None = None) -> list[str]:
    """Return the present warnings: of all, or of those that are good, or are not."""
    now = datetime.now(UTC)
    some = [one for one in dates if good is None or one.is_good(now) == good]
    return [text for one in some if (text := one.text(now))]


def _dates(name: str, file: Path) -> Iterator[CertificateDates]:
    from cryptography import x509  # only where there is TLS: every command would wait for it

    try:
        found = x509.load_pem_x509_certificates(file.read_bytes())
    except (OSError, ValueError):
        return  # no certificate: whoever loads it says so
    pick = max if name.rpartition(".")[2] in _AUTHORITIES else min
    one = pick(found, key=lambda each: each.not_valid_after_utc)
    yield CertificateDates(name, file, one.not_valid_before_utc, one.not_valid_after_utc)


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
