"""Arithmetic of delays: backoff and throttle. Pure functions; must not know what is delayed."""

from __future__ import annotations

THROTTLE_FIRST_S = 30.0
THROTTLE_MAX_S = 3600.0
HEALTHY_AFTER_S = 600.0
"""A service that has run for so long begins anew with short delays, where its job says nothing."""


def throttle_s(failures: int) -> float:
    """The delay before the next attempt after so many failures: 0, 30, 60, 120 … 3600 s."""
    if failures <= 0:
        return 0.0
    return float(min(THROTTLE_FIRST_S * 2.0 ** min(failures - 1, 32), THROTTLE_MAX_S))
