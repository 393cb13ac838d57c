"""peloton.api.v0.respool.ResourceManager: resource pools.

This service answers errors inside an OK answer, not with a status.
"""

from __future__ import annotations

import uuid
from typing import Any

from peloton.actors.respool import messages as m
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.gateway.access.permissions import Rights
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.cluster.requests import made_id, request_of
from peloton.gateway.translate.texts import client_name
from peloton.gateway.translate.translate_pool import pool_id, pool_info_of, to_pool
from peloton.runtime.vocabulary import Key, Refused

NOT_FOUND = "resource pool not found"


class ResourceManager:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def CreateResourcePool(self, sent: respool.CreateRequest, context: Context) -> Any:
        """Create a pool; its id is random, or derived from the request key if there is one."""
        request = request_of(sent, context)
        new = made_id(request, "pool") if request is not None else str(uuid.uuid4())
        if not sent.HasField("config"):
            return respool.CreateResponse(error=_invalid_create(new, "resource pool config is nil"))
        command = m.CreatePool(to_pool(sent.config))
        key = m.pool_key(new)
        answer = self._cluster_client.ask(key, command, context=context, request=request)
        if not isinstance(answer, Refused):
            return respool.CreateResponse(result=pool_id(new))
        if answer.code == "BUSY":
            taken = respool.ResourcePoolAlreadyExists(id=pool_id(new), message=answer.text)
            return respool.CreateResponse(error=respool.CreateResponse.Error(alreadyExists=taken))
        return respool.CreateResponse(error=_invalid_create(new, answer.text))

    def GetResourcePool(self, sent: respool.GetRequest, context: Context) -> Any:
        """Return one pool, by default the root; with its children if requested."""
        wanted = m.pool_key(sent.id.value) if sent.id.value else m.ROOT
        found = self._cluster_client.pool(m.GetPool(wanted, children=True), context)
        if not found:
            missing = respool.ResourcePoolNotFound(id=sent.id, message=NOT_FOUND)
            return respool.GetResponse(error=respool.GetResponse.Error(notFound=missing))
        rights = self._cluster_client.rights(context)
        children: dict[Key, m.PoolView] = {}
        if sent.includeChildPools or rights is not None:
            pools = self._cluster_client.pools(context, parent=wanted)
            children = visible_pools(pools, rights)
        info = pool_info_of(found[0], among=None if rights is None else children)
        if not sent.includeChildPools:
            return respool.GetResponse(poolinfo=info)
        # Of the children's own children only the ids would be known, and not who may see them.
        among = None if rights is None else ()
        below = [pool_info_of(children[child], among=among) for child in sorted(children)]
        return respool.GetResponse(poolinfo=info, childPools=below)

    def DeleteResourcePool(self, sent: respool.DeleteRequest, context: Context) -> Any:
        """Delete the pool at a path, if it is a leaf and unused."""
        Error = respool.DeleteResponse.Error
        view = self._at(sent.path.value, context)
        if view is None:
            missing = respool.ResourcePoolPathNotFound(path=sent.path, message=NOT_FOUND)
            return respool.DeleteResponse(error=Error(notFound=missing))
        request = request_of(sent, context)
        answer = self._cluster_client.ask(
            view.pool, m.DeletePool(), context=context, request=request
        )
        if not isinstance(answer, Refused):
            return respool.DeleteResponse()
        refusal: dict[str, Any] = {"id": pool_id(client_name(view.pool)), "message": answer.text}
        if answer.code == "NOT_FOUND":
            gone = respool.ResourcePoolPathNotFound(path=sent.path, message=answer.text)
            error = Error(notFound=gone)
        elif answer.code == "NOT_LEAF":
            error = Error(isNotLeaf=respool.ResourcePoolIsNotLeaf(**refusal))
        elif answer.code == "BUSY":
            error = Error(isBusy=respool.ResourcePoolIsBusy(**refusal))
        else:
            error = Error(notDeleted=respool.ResourcePoolNotDeleted(**refusal))
        return respool.DeleteResponse(error=error)

    def UpdateResourcePool(self, sent: respool.UpdateRequest, context: Context) -> Any:
        """Replace the config of a pool.

        Force skips the rules of the tree, not the validation.
        """
        Error = respool.UpdateResponse.Error
        config = to_pool(sent.config)
        problem = "resource pool config is nil" if not sent.HasField("config") else ""
        if not sent.id.value:
            problem = "resource pool ID is nil"
        elif sent.Force and config.problem:
            problem = config.problem
        if problem:
            bad = respool.InvalidResourcePoolConfig(id=sent.id, message=problem)
            return respool.UpdateResponse(error=Error(invalidResourcePoolConfig=bad))
        key = m.pool_key(sent.id.value)
        order, request = m.UpdatePool(config, sent.Force), request_of(sent, context)
        answer = self._cluster_client.ask(key, order, context=context, request=request)
        if not isinstance(answer, Refused):
            return respool.UpdateResponse()
        if answer.code == "NOT_FOUND":
            missing = respool.ResourcePoolNotFound(id=sent.id, message=answer.text)
            return respool.UpdateResponse(error=Error(notFound=missing))
        bad = respool.InvalidResourcePoolConfig(id=sent.id, message=answer.text)
        return respool.UpdateResponse(error=Error(invalidResourcePoolConfig=bad))

    def LookupResourcePoolID(self, sent: respool.LookupRequest, context: Context) -> Any:
        """Return the id of the pool at a path."""
        Error = respool.LookupResponse.Error
        path = sent.path.value
        if not path.startswith("/"):
            text = "path should begin with /" if path else "path cannot be empty"
            bad = respool.InvalidResourcePoolPath(path=sent.path, message=text)
            return respool.LookupResponse(error=Error(invalidPath=bad))
        view = self._at(path, context)
        if view is None:
            text = f"{NOT_FOUND}: {path}"
            missing = respool.ResourcePoolPathNotFound(path=sent.path, message=text)
            return respool.LookupResponse(error=Error(notFound=missing))
        return respool.LookupResponse(id=pool_id(client_name(view.pool)))

    def Query(self, sent: respool.QueryRequest, context: Context) -> Any:
        """Return every pool, the root among them."""
        rights = self._cluster_client.rights(context)
        pools = visible_pools(self._cluster_client.pools(context), rights)
        among = None if rights is None else pools
        infos = [pool_info_of(view, among=among) for view in pools.values()]
        return respool.QueryResponse(resourcePools=infos)

    def _at(self, path: str, context: Context) -> m.PoolView | None:
        if not path.startswith("/"):
            return None
        wanted = "/" + "/".join(part for part in path.split("/") if part)
        found = self._cluster_client.pool(m.GetPool(path=wanted), context)
        return found[0] if found else None


def visible_pools(pools: dict[Key, m.PoolView], rights: Rights | None) -> dict[Key, m.PoolView]:
    """Return the pools that the caller may see."""
    if rights is None:
        return pools
    return {pool: view for pool, view in pools.items() if rights.sees_pool(view.path)}


def _invalid_create(new: str, text: str) -> respool.CreateResponse.Error:
    bad = respool.InvalidResourcePoolConfig(id=pool_id(new), message=text)
    return respool.CreateResponse.Error(invalidResourcePoolConfig=bad)
