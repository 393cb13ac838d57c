"""A host: its capacity, and the ledger of its runs. Only a host actor grants resources.

`granting.py` settles what placers propose, `ledger.py` has the runs and their steps, `reports.py`
and `comparing.py` judge what a backend says, `maintenance.py` and `moving.py` take a host down. In
rooms: `holds` (somebody wants it whole) and `live` (what goes on inside of runs); `inventory` is a
kind of its own. What backends are told and tell is promised in `backends/port.py`.
"""
