"""The spec that an update wants for a service: a config of v0, checked as that of a creation.

The config becomes a spec and own configs of instances, or ends the call. The job compares them with
its present spec at the moment of the change.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.host.run_spec import SecretRef
from peloton.actors.resources import BadAmount
from peloton.actors.respool.messages import GetPool, pool_key
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.host_abilities import refuse_commands_in_images, refuse_uris
from peloton.gateway.translate.run_as import NotPermitted, run_as
from peloton.gateway.translate.translate_job import ParsedJob, to_spec
from peloton.gateway.v0.job_create import WHOLE_BYTES_MAX
from peloton.gateway.v0.pool_limits import warn_of_limits


def spec_wanted(
    cluster_client: ClusterClient,
    config: job.JobConfig,
    *,
    context: Context,
    text_of: Callable[[str], str] = str,
    secrets: tuple[SecretRef, ...] = (),
) -> ParsedJob:
    """Return the spec of a config that names its pool, with these secrets.

    `text_of` turns a text about the config into the client's terms.
    """
    try:
        by, inventories = run_as(context.principal), cluster_client.inventories
        on_mesos = cluster_client.on_mesos
        wanted = to_spec(config, by, inventories=inventories, on_mesos=on_mesos)
        wanted = wanted.with_secrets(secrets)
        if cluster_client.images_run:
            refuse_commands_in_images(wanted)
        if not on_mesos:
            refuse_uris(wanted)
    except (BadField, BadAmount) as error:
        end(context, Code.INVALID_ARGUMENT, text=text_of(str(error)))
    except NotPermitted as error:
        end(context, Code.PERMISSION_DENIED, text=str(error), field=error.field)
    if wanted.size_bytes() > WHOLE_BYTES_MAX:
        text = f"own configs of instances of more than {WHOLE_BYTES_MAX} bytes in an update"
        end(context, Code.UNIMPLEMENTED, text=f"{text} are not supported yet")
    wanted = wanted._replace(spec=cluster_client.strategies.chosen(wanted.spec, config))
    pool = GetPool(pool_key(config.respoolID.value), config_only=True)
    warn_of_limits(wanted, cluster_client.pool(pool, context), context=context)
    return wanted
