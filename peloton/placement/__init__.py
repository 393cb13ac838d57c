"""Choosing hosts for tasks, on views that may be stale. Pure: only hosts grant resources.

`placer.py` is the service, `index.py` its view of hosts; `reasons.py` and `row_checks.py` say which
hosts fit, `conditions.py` what constraints mean, `strategies.py` who comes first, and
`waiting_wishes.py` keeps what found no host. How one of these rules is changed is said in
docs/contributing.md. All that a placer knows may be lost at any time, and is told anew.
"""
