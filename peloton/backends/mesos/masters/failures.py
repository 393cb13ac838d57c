"""Failures of a connection, in words for people.

Most are of TLS, in which masters and agents prove their names before anything is sent to them.
"""

from __future__ import annotations

import ssl

_WANTS_OURS = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE", "UNKNOWN_CA")
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")


def told_failure(error: OSError) -> str:
    """Return what failed, for a person."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    if isinstance(error, ssl.SSLEOFError):
        return "it hung up before there was TLS: it may speak none"
    reason = error.reason or ""
    if any(word in reason for word in _NO_TLS):
        return f"it does not speak TLS ({reason})"
    if any(word in reason for word in _WANTS_OURS):
        return f"it does not accept us: see `certificate` and `key` of `tls` ({reason})"
    return f"no TLS with it: {reason or error.args[-1]}"
