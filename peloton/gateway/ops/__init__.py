"""Our own services, health and metrics: what operators and people ask, and nobody of the original.

Why a job does not run, plans, waits and watches, schedules, what runs have printed, endpoints.
These calls may get fields and services as we need them (`proto/peloton/ops`). It stands on `v0`,
whose words for jobs and pools people know; it and `v1alpha` must not import each other.
"""
