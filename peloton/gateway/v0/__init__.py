"""The services of v0: jobs, tasks, pools, updates, and hosts and volumes of both generations.

The servicers are `job_manager.py`, `task_manager.py`, `resource_manager.py`, `update_service.py`,
`host_service.py`, `volumes.py`; the others are long calls of theirs. What `v1alpha` and `ops` build
on, such as `job_create.py` and the queries, may be changed for them; the calls and their texts are
the original's, and must not change. It must not import a room of other services.
"""
