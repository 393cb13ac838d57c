"""Resource pools: create, update, look up, list, delete; named by path ("/research/vision")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.respool import respool_pb2_grpc
from peloton.sdk import specs, translate
from peloton.sdk.calls import Calls, M, call
from peloton.sdk.errors import BadSpec, NotFound
from peloton.sdk.rpc import RpcName, keyed

ROOT = "/"


def method(name: str) -> RpcName:
    return RpcName("resmgr", respool_pb2_grpc.ResourceManagerStub, name)


def split(path: str) -> tuple[str, str]:
    """Return the parent's path and the last name."""
    if not path.startswith("/") or path.rstrip("/") == "":
        raise BadSpec(f"{path!r} is not the path of a pool below the root, such as /research")
    if any(part in ("", ".", "..") for part in path.rstrip("/")[1:].split("/")):
        raise BadSpec(f"{path!r} has a part that is empty, `.` or `..`")
    parent, _, name = path.rstrip("/").rpartition("/")
    return parent or ROOT, name


def give_shares(built: respool.ResourcePoolConfig, config: Any) -> None:
    """Give a resource whose share is left out the share of a kind that is left out, which is 1.

    On the wire that cannot be told from a share of 0.
    """
    if not isinstance(config, Mapping):
        return
    given = next(
        (value for key, value in config.items() if specs.plain(str(key)) == "resources"), ()
    )
    for one, written in zip(built.resources, given or (), strict=False):
        if not any(specs.plain(str(key)) == "share" for key in written):
            one.share = 1.0


class PoolCalls(Calls[M]):
    """The calls about pools."""

    @call
    async def create(self, path: str, config: Any, *, request_key: str | None = None) -> str:
        """Create a pool at `path`; its parent must exist. Returns the id.

        A pool without `resources` has the limits of its parent, as they are now.
        """
        built = await self.built(path, config)
        request = respool.CreateRequest(config=built)
        how = keyed(request_key)
        with specs.spelled_as(config):
            answer = await self._wire.call(method("CreateResourcePool"), request, how=how)
            return translate.inside(answer).result.value

    @call
    async def built(self, path: str, config: Any) -> respool.ResourcePoolConfig:
        """Return the message of a spec for the pool at `path`, whose parent must exist.

        Without `resources` it has the limits of its parent, as they are now.
        """
        parent, name = split(path)
        built = respool.ResourcePoolConfig()
        built.CopyFrom(specs.build(respool.ResourcePoolConfig, config))
        if built.HasField("parent"):
            raise BadSpec("must not be given: it is in the path", field="parent")
        if built.name != name:
            raise BadSpec(
                f"is {built.name!r} and must be {name!r}, the last part of the path", field="name"
            )
        give_shares(built, config)
        built.parent.value = await self.lookup(parent)
        if not built.resources:
            built.resources.extend(await self.limits(built.parent.value))
        return built

    @call
    async def update(
        self, path: str, config: Any, *, force: bool = False, request_key: str | None = None
    ) -> respool.UpdateResponse:
        """Replace the config of the pool at `path`; `config` is a whole spec, as of `create`.

        With `force` the rules of the tree are not checked, such as that limits of children fit.
        """
        request = respool.UpdateRequest(config=await self.built(path, config), Force=force)
        request.id.value = await self.lookup(path)
        with specs.spelled_as(config):
            answer = await self._wire.call(
                method("UpdateResourcePool"), request, how=keyed(request_key)
            )
            return translate.inside(answer)

    @call
    async def limits(self, pool_id: str) -> list[respool.ResourceConfig]:
        """Return resources with the limits of a pool, and nothing reserved."""
        found = (await self.get(pool_id)).poolinfo.config.resources
        return [respool.ResourceConfig(kind=one.kind, limit=one.limit, share=1.0) for one in found]

    @call
    async def lookup(self, path: str) -> str:
        """Return the id of the pool at `path`."""
        request = respool.LookupRequest(path=respool.ResourcePoolPath(value=path))
        answer = await self._wire.call(method("LookupResourcePoolID"), request)
        try:
            found = translate.inside(answer).id.value
        except NotFound as error:
            text = error.message if path in error.message else f"{error.message}: {path}"
            raise NotFound(text, kind=error.kind) from None
        if not found:
            raise NotFound(f"resource pool not found: {path}", kind="notFound")
        return found

    @call
    async def get(self, pool_id: str, *, children: bool = False) -> respool.GetResponse:
        request = respool.GetRequest(
            id=peloton_pb2.ResourcePoolID(value=pool_id), includeChildPools=children
        )
        return translate.inside(await self._wire.call(method("GetResourcePool"), request))

    @call
    async def list(self) -> respool.QueryResponse:
        """Return every pool, including the root."""
        answer = await self._wire.call(method("Query"), respool.QueryRequest())
        return translate.inside(answer)

    @call
    async def delete(self, path: str, *, request_key: str | None = None) -> respool.DeleteResponse:
        """Delete a pool that has no children and no work. Raises NotFound, Conflict."""
        await self.lookup(path)
        request = respool.DeleteRequest(path=respool.ResourcePoolPath(value=path))
        how = keyed(request_key)
        answer = await self._wire.call(method("DeleteResourcePool"), request, how=how)
        try:
            return translate.inside(answer)
        except NotFound:
            # It was there: this call has deleted it, and its answer was lost. No path leads to what
            # a deleted pool remembers of keys.
            return respool.DeleteResponse()
