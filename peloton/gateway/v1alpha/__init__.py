"""The services of v1alpha: jobs as stateless services, pods, watches, lockdowns.

`stateless.py` and `pods.py` are the servicers, and the modules called after them are their calls.
It is written on `v0`: a spec becomes a config of v0, and what both generations say the same way
is there. The calls and their texts are the original's, and must not change; a field of ours is
added.
"""
