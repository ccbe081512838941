"""Responds to requests for the root with OpenAPI descriptions, built in threads and cached."""

from __future__ import annotations

from collections.abc import Hashable

from dataapi.catalog.model import Catalog
from dataapi.concurrency.cache import BoundedCache
from dataapi.concurrency.tasks import PeriodicPause, SharedWork
from dataapi.http.errors import ApiError
from dataapi.http.headers import CALLER_VARY
from dataapi.http.messages import Reply, Request
from dataapi.rest import respond
from dataapi.rest.openapi.description import Version, describe, negotiate_description, with_address
from dataapi.rest.parse.request import ApiRequest
from dataapi.settings import Project

DESCRIPTIONS = 64
DESCRIPTION_BYTES = 50_000_000
"""Maximum total size of the cached descriptions in bytes."""

_ALLOW = ("Allow", "OPTIONS,GET,HEAD")

DescriptionKey = tuple[Hashable, str, str, Version]
"""Cache key of a description: the catalog's content, the role, the schema and the OpenAPI version."""


class Descriptions:
    """The OpenAPI descriptions of one project, built in threads and cached."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._cache: BoundedCache[DescriptionKey, bytes] = BoundedCache(DESCRIPTIONS, DESCRIPTION_BYTES)
        self._work: SharedWork[DescriptionKey, bytes] = SharedWork(self._put)

    async def respond(self, http: Request, request: ApiRequest, catalog: Catalog, role: str) -> Reply:
        """Describe the part of the schema that the role may use.

        :raises ApiError: PGRST126 (404) if descriptions are disabled, PGRST107 (406) if none of the accepted
            media types is available, PGRST117 (405) for a write.
        """
        if self._project.openapi_mode == "disabled":
            raise ApiError(404, "PGRST126", "Root endpoint metadata is disabled")
        plan_input = request.input
        if plan_input.method == "OPTIONS":
            return Reply(200, (_ALLOW,), b"")
        if not plan_input.reads:
            raise respond.unsupported(plan_input.method, _ALLOW)
        media_type, version = negotiate_description(plan_input.accept, request.openapi)
        description = await self.get(catalog, role, plan_input.schema, version)
        headers = (("Content-Type", media_type), *request.profile, ("Vary", f"Accept, {CALLER_VARY}"))
        return Reply(200, headers, with_address(self._project, http, version, description))

    async def get(self, catalog: Catalog, role: str, schema: str, version: Version) -> bytes:
        key = (catalog.content or catalog.generation, role, schema, version)
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        return await self._work.result(
            key, lambda: describe(self._project, catalog, role, schema, version, PeriodicPause())
        )

    def _put(self, key: DescriptionKey, description: bytes) -> None:
        self._cache.put(key, description, len(description))
