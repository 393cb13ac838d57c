"""What the system decides: one folder per kind of actor, with the same files in each. All pure.

What the files are is said in docs/architecture.md ("A kind's files"), how a kind is added in
docs/contributing.md. A kind reads of another one its messages, and nothing more, unless it follows
the states of its children (`FOLLOWS` in tests/house/floors.py); a kind that serves one other alone
lies in its folder. Modules beside the folders are values that all may have. Of the runtime nothing
here may import more than `vocabulary.py` and `kinds.py`, nor know how its messages travel.
"""
