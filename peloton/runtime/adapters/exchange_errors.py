"""The reason why a stream to a peer did not open, in words for people.

Turns the text of a gRPC error into one short reason, in which "it" is the peer. Equal errors give
equal texts, because the reason is told to all daemons. An unknown text is passed on as it is.
"""

from __future__ import annotations

import re

OPENED = ("ended by the other side", "CANCELLED")
"""How texts begin of streams that were open."""
_REASONS = (
    (r"CERTIFICATE_VERIFY_FAILED: certificate has expired", "its certificate has expired"),
    (r"CERTIFICATE_VERIFY_FAILED: (.*?)(?:: OK)?$", r"its certificate is not accepted: \1"),
    (r"Hostname Verification Check failed", "its certificate does not name this address"),
    (r"WRONG_VERSION_NUMBER", "what listens there does not use TLS"),
    (r"Socket closed", "it ended the connection at once, as who does not accept our certificate"),
    (r"errors resolving|lookup error", "the name of its host cannot be resolved"),
    (r"Connection refused", "connection refused"),
    (r"Failed to connect to remote host: (.*)$", r"no connection: \1"),
    (r"last error: \w+: (?:ipv[46]:\S+: )?(.*)$", r"\1"),
)  # fmt: skip


def reason(code: str, details: str) -> str:
    """Return the reason for an error with this gRPC code."""
    if code != "UNAVAILABLE":
        return f"{code}: {details}"
    for pattern, text in _REASONS:
        found = re.search(pattern, details)
        if found is not None:
            return found.expand(text)
    return details


def was_open(text: str) -> bool:
    """Return whether the stream that ended with this text was open before."""
    return text.startswith(OPENED)


def is_about_trust(text: str) -> bool:
    """Return whether the error concerns certificates: then waiting does not help."""
    return "certificate" in text or "TLS" in text
