"""The kinds of actors: what the system decides, one folder per kind with the same files in each.

docs/architecture.md ("A kind's files") says what the files are, docs/contributing.md how a kind is
added. All code here is pure. A kind imports from another one its messages only, unless it follows
the states of its children (`FOLLOWS` in tests/house/floors.py); a kind that serves one other alone
lies in its folder. Modules beside the folders are values that all kinds may use. Of the runtime
only `vocabulary.py` and `kinds.py` may be imported, so that no kind depends on how its messages
travel.
"""
