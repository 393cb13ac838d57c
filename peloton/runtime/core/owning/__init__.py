"""The ownership of shards, as one daemon sees it: ranking, claims, hand-over, and old owners.

The modules are told what happened and the time, and return what to do; the shells of the runtime do
it. That there is never a second owner is the journal's promise: what is decided here may be late.
Members and numbers of shards are known here, entities are not; `reach` has who reaches whom.
"""
