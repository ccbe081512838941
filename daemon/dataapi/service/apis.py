"""What answers the requests of a project: its GraphQL engine, REST handler and persisted documents.

Importing this module imports both APIs and the HTTP server's routes, which takes about as long as PostgreSQL
takes to describe a database of a thousand tables: a start does both at the same time.
"""

from __future__ import annotations

from dataapi.auth.authenticator import Authenticator
from dataapi.catalog.model import Catalog
from dataapi.catalog.watcher import CatalogWatcher
from dataapi.database.pool import Pool
from dataapi.graphql.document_store import DocumentFolder
from dataapi.graphql.engine import Engine
from dataapi.rest.handler import RestHandler
from dataapi.settings import Project
from dataapi.web.app import make_site
from dataapi.web.routing import Backend

__all__ = ["ProjectApis", "make_site"]


class ProjectApis:
    """Both APIs of a project.

    :ivar documents: the persisted documents.
    :ivar backend: what the routes need of the project.
    """

    def __init__(
        self, project: Project, pool: Pool, watcher: CatalogWatcher, authenticator: Authenticator
    ) -> None:
        def catalog() -> Catalog | None:
            return watcher.current

        self.documents = folder = DocumentFolder(project.graphql_documents)
        self._engine = Engine(project, pool, catalog, lambda: folder.documents, watcher.refresh)
        self._rest = RestHandler(project, pool, catalog, watcher.refresh)
        self.backend = Backend(project, authenticator, self._engine, self._rest)

    @property
    def plan_lookups(self) -> tuple[int, int]:
        """How many look-ups of plans were hits and misses."""
        engine, figures = self._engine, self._rest.figures
        return engine.hits + figures.hits, engine.misses + figures.misses
