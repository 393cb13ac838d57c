"""Health and containers of running runs, and which of their changes the tasks know.

Part of the kind "host". Backends report changes, and the host passes them to the task and keeps
nothing; no run is granted or ended here. Other kinds may read `live_messages.py`; its numbers and
fields are permanent.
"""
