"""Answers requests of the root: descriptions of schemas, made in threads and cached."""

from __future__ import annotations

from collections.abc import Hashable

from dataapi.catalog.model import Catalog
from dataapi.concurrency.cache import BoundedCache
from dataapi.concurrency.tasks import PeriodicPause, SharedWork
from dataapi.http.errors import ApiError
from dataapi.http.headers import CALLER
from dataapi.http.messages import Reply, Request
from dataapi.rest import respond
from dataapi.rest.openapi.description import Version, describe, negotiate_description, with_address
from dataapi.rest.parse.request import ApiRequest
from dataapi.settings import Project

DESCRIPTIONS = 64
"""Descriptions that are cached."""
DESCRIPTION_BYTES = 50_000_000
"""Bytes of the descriptions that are cached."""

_ALLOW = ("Allow", "OPTIONS,GET,HEAD")

DescriptionKey = tuple[Hashable, str, str, Version]
"""What a description depends on: the content of the catalog, the role, the schema and the version."""


class Descriptions:
    """The OpenAPI descriptions of one project, made in threads and cached."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._cache: BoundedCache[DescriptionKey, bytes] = BoundedCache(DESCRIPTIONS, DESCRIPTION_BYTES)
        self._work: SharedWork[DescriptionKey, bytes] = SharedWork(self._put)

    async def answer(self, http: Request, request: ApiRequest, catalog: Catalog, role: str) -> Reply:
        """Describe what the role may use of the schema.

        :raises ApiError: PGRST126 (404), descriptions are switched off; PGRST107 (406), none of the
            accepted media types is available; PGRST117 (405), the root cannot be written.
        """
        if self._project.openapi_mode == "disabled":
            raise ApiError(404, "PGRST126", "Root endpoint metadata is disabled")
        asked = request.input
        if asked.method == "OPTIONS":
            return Reply(200, (_ALLOW,), b"")
        if not asked.reads:
            raise respond.unsupported(asked.method, _ALLOW)
        media_type, version = negotiate_description(asked.accept, request.openapi)
        description = await self.get(catalog, role, asked.schema, version)
        headers = (("Content-Type", media_type), *request.profile, ("Vary", f"Accept, {CALLER}"))
        return Reply(200, headers, with_address(self._project, http, version, description))

    async def get(self, catalog: Catalog, role: str, schema: str, version: Version) -> bytes:
        """Return what ``describe`` does, made in a thread at its first use."""
        key = (catalog.content or catalog.generation, role, schema, version)
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        return await self._work.result(
            key, lambda: describe(self._project, catalog, role, schema, version, PeriodicPause())
        )

    def _put(self, key: DescriptionKey, description: bytes) -> None:
        self._cache.put(key, description, len(description))
