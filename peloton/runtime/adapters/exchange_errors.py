"""Why a stream to a peer did not open, as people say it.

Turns the text of a gRPC error into one short reason, and the same one each time, as it is told to
all daemons. "It" is the peer. It must not hide what it does not know.
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
    """Of an error with this gRPC code."""
    if code != "UNAVAILABLE":
        return f"{code}: {details}"
    for pattern, text in _REASONS:
        found = re.search(pattern, details)
        if found is not None:
            return found.expand(text)
    return details


def was_open(text: str) -> bool:
    """Whether a stream that ended with this text was open before."""
    return text.startswith(OPENED)


def is_about_trust(text: str) -> bool:
    """Whether it is for a person to mend: waiting does not help against a certificate."""
    return "certificate" in text or "TLS" in text
