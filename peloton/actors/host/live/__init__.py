"""What goes on inside of runs: their health, their containers, and who has been told of it.

Part of the kind "host", as all beside it. Backends report changes, the host passes them to the
task and keeps nothing, and nothing here grants or ends a run. `live_messages.py` may be read by
other kinds; its numbers and fields stay.
"""
