"""Makes descriptions off the reactor and keeps them, per role, schema and version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version as version_of

from dataapi.cache import BoundedCache
from dataapi.catalog.model import Catalog
from dataapi.catalog.privileges import Privileges
from dataapi.rest.openapi import openapi3, swagger
from dataapi.rest.openapi.shown import Shown
from dataapi.rest.openapi.writing import encode
from dataapi.settings import Project
from dataapi.threads import Naps, SharedWork

DESCRIPTIONS = 64
"""Descriptions that are kept."""
DESCRIPTION_BYTES = 50_000_000
"""Bytes of the descriptions that are kept."""


class Version(Enum):
    """The versions of OpenAPI that a schema is described in."""

    SWAGGER = "2.0"
    OPENAPI = "3.1"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which description.

    :ivar generation: the catalog's.
    """

    generation: int
    role: str
    schema: str
    version: Version


def describe(
    project: Project, catalog: Catalog, role: str, schema: str, version: Version, pause: Callable[[], None]
) -> bytes:
    """Return the description as a JSON object, without the members that say where the API is.

    :param pause: called between small pieces of work.
    """
    privileges = None if project.openapi_mode == "ignore-privileges" else Privileges(catalog, role)
    shown = Shown(catalog, schema, privileges, pause)
    make = swagger.document if version is Version.SWAGGER else openapi3.document
    return encode(make(shown, version_of("dataapi"), api_key=project.require_api_key), pause)


class Descriptions:
    """The descriptions of one project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._kept: BoundedCache[Wanted, bytes] = BoundedCache(DESCRIPTIONS, DESCRIPTION_BYTES)
        self._work: SharedWork[Wanted, bytes] = SharedWork(self._keep)

    async def get(self, catalog: Catalog, role: str, schema: str, version: Version) -> bytes:
        """Return what ``describe`` does, made in a thread at its first use."""
        wanted = Wanted(catalog.generation, role, schema, version)
        known = self._kept.get(wanted)
        if known is not None:
            return known
        return await self._work.result(
            wanted, lambda: describe(self._project, catalog, role, schema, version, Naps())
        )

    def _keep(self, wanted: Wanted, description: bytes) -> None:
        self._kept.put(wanted, description, len(description))
