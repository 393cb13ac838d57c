"""The services of v0: jobs, tasks, pools, updates, and hosts and volumes of both API versions.

The servicers are `job_manager.py`, `task_manager.py`, `resource_manager.py`, `update_service.py`,
`host_service.py`, `volumes.py`; the other modules are their longer calls. Code that `v1alpha` and
`ops` use, such as `job_create.py` and the queries, may be changed for them; the calls and their
texts are the original's, and must not change. No other folder of services may be imported here, as
both use this one.
"""
