"""The commands of services: their specs, workflows, pods and endpoints.

Those under `job stateless` and `pod` use v1alpha, `update` and `job rolling-...` v0, with the words
of the original; `diff`, `watch` and `service` are Peloton's own. `workflow_wait.py` prints how far
a workflow is for all of them. They use the commands of jobs where a service is a job like others.
"""
