"""Certificates for tests, made by openssl: an authority, and keys that it signed.

Use them in tests only: nothing protects their keys.
"""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from peloton.runtime.adapters.grpc_exchange import Tls


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Authority:
    """One CA in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.ca, self._key = folder / "ca.pem", folder / "ca.key"
        _openssl(
            *"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365".split(),
            *("-subj", "/CN=tests", "-keyout", str(self._key), "-out", str(self.ca)),
        )

    def issue(self, name: str, *, says: str = "IP:127.0.0.1") -> Tls:
        """A key and a certificate that `says` this of whoever has it."""
        key, asked, made = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        more = self.folder / f"{name}.ext"
        more.write_text(f"subjectAltName={says}\n")
        _openssl(
            *"req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(),
            *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(asked)),
        )
        _openssl(
            *("x509", "-req", "-days", "365", "-in", str(asked), "-CA", str(self.ca)),
            *("-CAkey", str(self._key), "-CAcreateserial", "-extfile", str(more)),
            *("-out", str(made)),
        )
        return Tls(self.ca, made, key)

    def expired(self, name: str) -> Tls:
        """As `issue`, with a certificate that was good for a day of the year 2020."""
        return self.good_for_a_day(name, datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))

    def good_for_a_day(self, name: str, begun: datetime.datetime) -> Tls:
        """As `issue`, with a certificate that is good for a day from then on."""
        issued = self.issue(name)
        found = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
        key = serialization.load_pem_private_key(self._key.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        made = (
            x509.CertificateBuilder()
            .subject_name(found.subject)
            .issuer_name(found.issuer)
            .public_key(found.public_key())
            .serial_number(found.serial_number)
            .not_valid_before(begun)
            .not_valid_after(begun + datetime.timedelta(days=1))
        )
        for extension in found.extensions:
            made = made.add_extension(extension.value, critical=extension.critical)
        signed = made.sign(key, hashes.SHA256())
        issued.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return issued
