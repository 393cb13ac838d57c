"""Peloton's own services, health and metrics, which the original does not have.

Why a job does not run, plans, waits and watches, schedules, what runs have printed, endpoints.
These calls may get fields and services as needed (`proto/peloton/ops`). The code uses `v0`, whose
terms for jobs and pools people know; it and `v1alpha` must not import each other, so that each can
change alone.
"""
