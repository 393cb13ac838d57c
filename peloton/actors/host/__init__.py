"""A host: its capacity, and the ledger of its runs. Only a host actor grants resources.

`granting.py` settles what placers propose, `ledger.py` has the runs and their steps, `reports.py`
and `comparing.py` judge what a backend reports, `maintenance.py` and `moving.py` take a host down.
The folders: `holds` (a client wants the host whole), `live` (health and containers of runs);
`inventory` is a kind of its own. `backends/port.py` has the promises between hosts and backends.
"""
