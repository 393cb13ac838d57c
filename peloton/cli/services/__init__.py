"""The commands of services: their specs, workflows, pods and endpoints.

Those under `job stateless` and `pod` speak v1alpha, `update` and `job rolling-...` v0, with the
words of the original; `diff`, `watch` and `service` are ours. `workflow_wait.py` is how all of
them tell how far a workflow is. It stands on the commands of jobs where a service is a job like
others.
"""
