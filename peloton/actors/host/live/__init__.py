"""What goes on inside of runs: their health, their containers, and who has been told of it.

Part of the kind "host", as all beside it. Backends report changes, the host keeps the newest
and passes it to the task, and nothing here grants or ends a run. `health_messages.py` and
`container_messages.py` may be read by other kinds; their numbers and fields stay.
"""
