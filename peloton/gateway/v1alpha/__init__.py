"""The services of v1alpha: jobs as stateless services, pods, watches, lockdowns.

`stateless.py` and `pods.py` are the servicers, and the modules named after them are their calls.
The code uses `v0`: a spec becomes a config of v0, and what both API versions say the same way is
there. The calls and their texts are the original's, and must not change; own fields may be added.
"""
