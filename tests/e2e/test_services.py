"""Services of clients of v1alpha on a real cluster: created, run again, and stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from tests.channels import channel_to
from tests.e2e import cluster as c


def spec_of(pool: str, said: Path) -> stateless.JobSpec:
    """Two instances that say that they began; the second has a word of its own."""

    def container(word: str) -> dict[str, Any]:
        return {
            "resource": {"cpu_limit": 0.01, "mem_limit_mb": 1.0, "disk_limit_mb": 1.0},
            "entrypoint": {"value": f'echo "$WORD" >> {said}; sleep 1000'},
            "environment": [{"name": "WORD", "value": word}],
        }

    return stateless.JobSpec(
        name="service",
        owning_team="team",
        instance_count=2,
        respool_id={"value": pool},
        sla={"preemptible": True, "maximum_unavailable_instances": 1},
        default_spec={"containers": [container("first")]},
        instance_spec={1: {"containers": [container("second")]}},
    )


def test_a_service_of_v1alpha_runs_and_outlives_the_cluster(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            pool = str(client.pools.lookup(c.pool(client)))
        with channel_to(cluster.address) as channel:
            jobs = stateless_svc_pb2_grpc.JobServiceStub(channel)
            made = jobs.CreateJob(svc.CreateJobRequest(spec=spec_of(pool, said)))
            c.wait_for(lambda: _pods(jobs, made.job_id) == {"POD_STATE_RUNNING": 2}, "2 to run")
            c.wait_for(lambda: sorted(_lines(said)) == ["first", "second"], "both words")
            sent = jobs.GetJob(svc.GetJobRequest(job_id=made.job_id)).job_info.spec
        cluster.kill()
        cluster.start()
        with channel_to(cluster.address) as channel:
            jobs = stateless_svc_pb2_grpc.JobServiceStub(channel)
            found = jobs.GetJob(svc.GetJobRequest(job_id=made.job_id)).job_info
            for one in (found.spec, sent):
                one.ClearField("revision")  # which says when the job changed last
            assert found.spec == sent and found.status.version == made.version
            assert [one.jobs[0].job_id for one in jobs.ListJobs(svc.ListJobsRequest())] == [
                made.job_id
            ]
            stopped = jobs.StopJob(
                svc.StopJobRequest(job_id=made.job_id, version=found.status.version)
            )
            assert stopped.version.value == "1-2-1"
            c.wait_for(lambda: _pods(jobs, made.job_id) == {"POD_STATE_KILLED": 2}, "2 to end")
        assert len(_lines(said)) == 2, "a run began anew though nothing ended"


def _pods(jobs: Any, job_id: Any) -> dict[str, int]:
    found = jobs.GetJob(svc.GetJobRequest(job_id=job_id, summary_only=True))
    return dict(found.summary.status.pod_stats)


def _lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []
