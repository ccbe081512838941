"""The GraphQL operations of one role at one catalog generation: document, plan and bound statements."""

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
"""Parsed and validated documents cached for one role."""
DOCUMENT_BYTES = 12_000_000
"""Bytes that the documents cached for one role take.

This and ``PLAN_BYTES`` also bound the time of a garbage collection, because it visits everything cached.
"""
LONGEST_CACHED = 20_000
"""Characters of the longest document that is cached."""
PLANS_PER_ROLE = 5_000
"""Plans cached for one role."""
PLAN_BYTES = 6_000_000
"""Bytes that the plans cached for one role take."""
LONGEST_PLAN = 100_000
"""Characters of SQL in the longest plan that is cached, and whose statements are prepared."""


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document, with the literals and aliases by name that were taken out of the request's text."""

    document: Document
    parameters: Parameters

    @property
    def weight(self) -> int:
        """Return about how many bytes it takes, with a document that may not be cached otherwise."""
        return self.document.weight + 2 * len(self.document.text) + 150 * len(self.parameters.values)


class GraphQLRole:
    """One role's schema, with the documents and plans made for it.

    Threads may share it: of what two of them make at the same time, one is used.

    :ivar texts: documents that were prepared before, by their texts.
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
            """Make the schema that introspection shows."""
            usable = view.introspectable()
            if usable is None:
                return None
            schemas.append(RoleSchema(usable.copy_for_thread()))
            return schemas[-1].schema

        self.introspection = Introspection(introspected)
        # Every request that uses the schemas has it.
        weakref.finalize(self.introspection, _dismantle, schemas).atexit = False

    def prepare(self, text: str) -> PreparedDocument:
        """Return the document of a text that was not prepared before, with the parameters of the text.

        :raises RequestRejected: the document does not parse, exceeds a limit or is not valid.
        """
        if len(text) > LONGEST_CACHED:
            return self.exact(text)
        prepared = self._shared(text) or self.exact(text)
        self.texts.put(text, prepared, prepared.weight)
        return prepared

    def _shared(self, text: str) -> PreparedDocument | None:
        """Return the document of all texts that differ only in literals and aliases, None without one."""
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
        """Return the document of exactly that text, its literals and aliases in it."""
        return PreparedDocument(Document(text, self.schema, self._limits), NO_PARAMETERS)

    def plan(
        self, document: Document, operation: GraphQLOperation, plan_input: OperationPlanInput
    ) -> OperationPlan:
        """Compile an operation; the plan is cached if it may come again."""
        plan = compile_plan(operation, self.schema, plan_input)
        if plan.errors or len(document.text) > LONGEST_CACHED or plan.length > LONGEST_PLAN:
            return plan.unprepared()
        self.plans.put(plan_input, plan, plan.weight)
        return plan


def _dismantle(schemas: list[RoleSchema]) -> None:
    """Free unused schemas in a thread, because they may have a hundred thousand objects."""

    def dismantle() -> None:
        while schemas:
            schemas.pop().dismantle()

    Thread(target=dismantle, name="schemas", daemon=True).start()
