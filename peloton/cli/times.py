"""Moments as tables show them: UTC, whole seconds. Must not know which zone the reader is in."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_text(at: float) -> str:
    """Seconds since 1970 as text; empty for 0, which stands for never."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else ""
