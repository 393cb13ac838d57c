"""Which daemon owns which shard, as one daemon sees it: ranking, claims, hand-over, and old owners.

Told of what happened and the time, these say what to do; the shells of the runtime do it. That
there is never a second owner is the journal's promise and not theirs: they may be late, and
never wrong for long. They know members and numbers of shards (`reach` has who reaches whom),
and no entity.
"""
