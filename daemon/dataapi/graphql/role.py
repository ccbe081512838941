"""A role's documents and plans for one catalog."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from threading import Thread

from graphql import GraphQLSchema

from dataapi.catalog.model import Catalog
from dataapi.catalog.names import CatalogNames
from dataapi.concurrency.cache import BoundedCache
from dataapi.graphql.document import Document, GraphQLOperation, Limits, OperationPlanInput
from dataapi.graphql.introspection import Introspection
from dataapi.graphql.literal_parameters import NO_PARAMETERS, Parameters, coerce_literals, extract_parameters
from dataapi.graphql.plan import OperationPlan, compile_plan
from dataapi.graphql.schema.role_schema import RoleSchema, catalog_view
from dataapi.settings import Project

DOCUMENTS_PER_ROLE = 1_000
"""Maximum number of cached documents per role."""
DOCUMENT_BYTES = 12_000_000
"""Maximum size of the cached documents per role, in bytes.

This and ``PLAN_BYTES`` also limit the duration of a garbage collection, because the collector visits all
cached objects.
"""
LONGEST_CACHED = 20_000
"""Maximum length of a cached document, in characters."""
PLANS_PER_ROLE = 5_000
"""Maximum number of cached plans per role."""
PLAN_BYTES = 6_000_000
"""Maximum size of the cached plans per role, in bytes."""
LONGEST_PLAN = 100_000
"""Maximum length of the SQL of a plan that is cached and prepared, in characters."""


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document and the literals and aliases extracted from the request's text."""

    document: Document
    parameters: Parameters

    @property
    def weight(self) -> int:
        """The approximate size in bytes, including the document, because other caches may not contain it."""
        return self.document.weight + 2 * len(self.document.text) + 150 * len(self.parameters.values)


class GraphQLRole:
    """A role's schema with its cached documents and plans.

    Threads may share a role. If two of them create the same document, either may be cached.
    """

    def __init__(
        self, catalog: Catalog, names: CatalogNames, role: str, project: Project, limits: Limits
    ) -> None:
        view = catalog_view(catalog, names, role, project)
        self.schema = RoleSchema(view, strict=project.graphql_validation == "strict")
        self._limits = limits
        self._documents: BoundedCache[str, Document] = BoundedCache(DOCUMENTS_PER_ROLE, DOCUMENT_BYTES / 2)
        self.texts: BoundedCache[str, PreparedDocument] = BoundedCache(DOCUMENTS_PER_ROLE, DOCUMENT_BYTES / 2)
        self.plans: BoundedCache[OperationPlanInput, OperationPlan] = BoundedCache(PLANS_PER_ROLE, PLAN_BYTES)
        schemas = [self.schema]

        def introspected() -> GraphQLSchema | None:
            usable = view.introspectable()
            if usable is None:
                return None
            schemas.append(RoleSchema(usable.copy_for_thread()))
            return schemas[-1].schema

        self.introspection = Introspection(introspected)
        # Requests that use the schemas hold a reference to ``introspection``, so the schemas are unused once
        # it is freed.
        weakref.finalize(self.introspection, _dismantle, schemas).atexit = False

    def prepare(self, text: str) -> PreparedDocument:
        if len(text) > LONGEST_CACHED:
            return self.exact(text)
        prepared = self._shared(text) or self.exact(text)
        self.texts.put(text, prepared, prepared.weight)
        return prepared

    def _shared(self, text: str) -> PreparedDocument | None:
        """Return the document shared by texts that differ only in literals and aliases, or None."""
        extracted = extract_parameters(text)
        if extracted is None:
            return None
        document = self._documents.get(extracted.shape)
        if document is None:
            document = Document(text, self.schema, self._limits, extracted)
            if document.is_exact:
                return PreparedDocument(document, NO_PARAMETERS)
            self._documents.put(extracted.shape, document, document.weight)
        parameters = coerce_literals(extracted, document.literal_types)
        return None if parameters is None else PreparedDocument(document, parameters)

    def exact(self, text: str) -> PreparedDocument:
        return PreparedDocument(Document(text, self.schema, self._limits), NO_PARAMETERS)

    def plan(
        self, document: Document, operation: GraphQLOperation, plan_input: OperationPlanInput
    ) -> OperationPlan:
        plan = compile_plan(operation, self.schema, plan_input)
        if plan.errors or len(document.text) > LONGEST_CACHED or plan.length > LONGEST_PLAN:
            return plan.unprepared()
        self.plans.put(plan_input, plan, plan.weight)
        return plan


def _dismantle(schemas: list[RoleSchema]) -> None:
    """Free unused schemas in a thread, because they may consist of a hundred thousand objects."""

    def dismantle() -> None:
        while schemas:
            schemas.pop().dismantle()

    Thread(target=dismantle, name="schemas", daemon=True).start()
