"""The GraphQL engine of one project: documents to plans, plans to one message, its row to an answer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from threading import Thread
from types import MappingProxyType
from typing import Any

from graphql import GraphQLError, GraphQLSchema

from dataapi.auth.authenticator import SERVICE_ROLE
from dataapi.auth.caller import Caller
from dataapi.auth.transaction import Runner, Transactions, UnknownRole, catalog_for
from dataapi.catalog.field_names import CatalogNames
from dataapi.catalog.model import Catalog
from dataapi.catalog.reflect import UNKNOWN_NAMES, Refresh, as_it_is
from dataapi.concurrency.cache import BoundedCache
from dataapi.concurrency.long_work import in_turn
from dataapi.database.message import Bound
from dataapi.graphql.document import Document, GraphQLOperation
from dataapi.graphql.document_store import Documents, document_text
from dataapi.graphql.introspection import Introspection
from dataapi.graphql.limits import Limits
from dataapi.graphql.literal_parameters import ExtractedLiterals, coerce_literals, extract_literals
from dataapi.graphql.plan import (
    OperationPlan,
    check_cost,
    introspection_fields,
    plan_mutation,
    plan_query,
    root_fields,
)
from dataapi.graphql.schema.role_schema import RoleSchema, catalog_view
from dataapi.graphql.transport import (
    GraphQLRequest,
    GraphQLResponse,
    RequestExtensions,
    RequestRejected,
    Stage,
)
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Request
from dataapi.settings import Project
from dataapi.sql.guards import violation_in

SHORT = 4_000
"""Characters of a document with its request's body, whose values are read at once and not in slices."""
INTERNAL = "XX"  # the class of PostgreSQL's internal errors
DATA_EXCEPTION = "22000"

DOCUMENTS_PER_ROLE = 1_000
"""Parsed and validated documents cached for one role."""
DOCUMENT_BYTES = 12_000_000
"""Bytes that the documents cached for one role take.

This and ``PLAN_BYTES`` also bound how long a garbage collection takes, which looks at all that is cached.
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
    """A document ready for a request.

    :ivar literals: the values of literals that were taken out of the text, as variables.
    """

    document: Document
    literals: Mapping[str, Any]

    @property
    def weight(self) -> int:
        """Return about how many bytes it takes, with a document that may not be cached otherwise."""
        return self.document.weight + 2 * len(self.document.text) + 150 * len(self.literals)


@dataclass(frozen=True, slots=True)
class _Ready:
    """What a request runs."""

    plan: OperationPlan
    statements: list[Bound]
    read_only: bool
    variables: Mapping[str, Any]


class _RoleState:
    """A role's schema and documents at one catalog generation."""

    def __init__(self, catalog: Catalog, names: CatalogNames, role: str, project: Project) -> None:
        view = catalog_view(catalog, names, role, project)
        self.schema = RoleSchema(view, strict=project.graphql_validation == "strict")
        self._documents: BoundedCache[Hashable, Document] = BoundedCache(
            DOCUMENTS_PER_ROLE, DOCUMENT_BYTES / 2
        )
        self._texts: BoundedCache[str, PreparedDocument] = BoundedCache(
            DOCUMENTS_PER_ROLE, DOCUMENT_BYTES / 2
        )
        self.plans: BoundedCache[Hashable, OperationPlan] = BoundedCache(PLANS_PER_ROLE, PLAN_BYTES)
        schemas = [self.schema]

        def introspected() -> GraphQLSchema | None:
            """Make the schema that introspection shows, sharing nothing that is made on demand."""
            usable = view.introspectable()
            if usable is None:
                return None
            schemas.append(RoleSchema(usable.apart()))
            return schemas[-1].schema

        self.introspection = Introspection(introspected)
        # Every request that uses the schemas, and the thread that introspects, has it.
        weakref.finalize(self.introspection, _dismantle, schemas).atexit = False

    def known(self, text: str) -> PreparedDocument | None:
        """Return the cached document of a text, None when there is none."""
        return self._texts.get(text)

    def alike(self, text: str) -> PreparedDocument | None:
        """Return the cached document of texts that differ from this one in literals alone, None for none."""
        extracted = extract_literals(text)
        document = None if extracted is None else self._shared(extracted)
        prepared = None if extracted is None or document is None else _with_literals(document, extracted)
        if prepared is not None:
            self._texts.put(text, prepared, prepared.weight)
        return prepared

    def _shared(self, extracted: ExtractedLiterals) -> Document | None:
        return self._documents.get(extracted.shape) or self._documents.get(
            (extracted.shape, extracted.pattern)
        )

    def prepare(self, text: str, limits: Limits) -> PreparedDocument:
        """Return the document of a text with the values of its literals.

        :raises RequestRejected: the document does not parse, exceeds a limit or is not valid.
        """
        prepared = self._prepare(text, limits)
        if len(text) <= LONGEST_CACHED:
            self._texts.put(text, prepared, prepared.weight)
        return prepared

    def _prepare(self, text: str, limits: Limits) -> PreparedDocument:
        extracted = extract_literals(text) if len(text) <= LONGEST_CACHED else None
        if extracted is None:
            return self.exact(text, limits)
        document = self._shared(extracted)
        if document is None:
            document = Document(text, self.schema, limits, extracted)
            self._documents.put(document.key, document, document.weight)
        return _with_literals(document, extracted) or self.exact(text, limits)

    def exact(self, text: str, limits: Limits) -> PreparedDocument:
        """Return the document of exactly that text, its literals in it."""
        return PreparedDocument(Document(text, self.schema, limits), {})


def _with_literals(document: Document, extracted: ExtractedLiterals) -> PreparedDocument | None:
    """Return a document with a text's literals, None when they do not fit the types of their places."""
    literals = coerce_literals(extracted, document.literal_types)
    return None if literals is None else PreparedDocument(document, literals)


def _dismantle(schemas: list[RoleSchema]) -> None:
    """Free schemas that are not used any more, in a thread, as there may be a hundred thousand objects."""

    def dismantle() -> None:
        while schemas:
            schemas.pop().dismantle()

    Thread(target=dismantle, name="schemas", daemon=True).start()


class Engine:
    """Answers GraphQL requests.

    :param catalog: returns the snapshot that serves now, None while there is none.
    :param documents: returns the persisted documents, None when no folder has any.
    :param refresh: makes sure that a catalog is not outdated.
    """

    def __init__(
        self,
        project: Project,
        runner: Runner,
        catalog: Callable[[], Catalog | None],
        documents: Callable[[], Documents | None] = lambda: None,
        refresh: Refresh = as_it_is,
    ) -> None:
        self._project = project
        self._catalog = catalog
        self._documents = documents
        self._refresh = refresh
        self._transactions = Transactions(project, runner)
        self._limits = Limits(
            project.graphql_max_depth,
            project.graphql_max_aliases,
            project.graphql_max_tokens,
            project.graphql_max_cost,
        )
        self._served: Catalog | None = None
        self._roles: dict[str, _RoleState] = {}
        self._names: CatalogNames | None = None
        self.hits = 0
        self.misses = 0

    async def answer(self, request: GraphQLRequest, caller: Caller, http: Request) -> GraphQLResponse:
        """Answer a request; raises ``ApiError`` when it cannot be answered at all.

        An unknown name may be newer than the catalog: nothing has happened yet, so that the request is
        answered by a newer catalog where there is one.
        """
        catalog = self._catalog()
        try:
            catalog = catalog_for(catalog, caller)
        except UnknownRole:
            assert catalog is not None
            catalog = catalog_for(await self._refresh(catalog), caller)  # the role may be a new one
        answer = await self._answer(request, caller, http, catalog)
        if answer.errors and _may_be_outdated(answer):
            newer = await self._refresh(catalog)
            if not newer.is_like(catalog):
                return await self._answer(request, caller, http, catalog_for(newer, caller))
        return answer

    async def _answer(
        self, request: GraphQLRequest, caller: Caller, http: Request, catalog: Catalog
    ) -> GraphQLResponse:
        role = self._role(catalog, caller.role)
        requested = RequestExtensions.of(request.extensions)
        reported: dict[str, Any] = {}
        ready: _Ready | None = None
        try:
            text = document_text(request, self._documents(), only=self._project.graphql_documents_only)
            _check_extensions(requested, caller)
            if not requested.cost and len(text) + len(http.body) <= SHORT:
                ready = self._known(role, request, text)
            if ready is None:
                ready = await self._ready(role, request, text, reported if requested.cost else None)
            if requested.explain:
                reported["explain"] = await self._transactions.explain(
                    catalog, http, caller, ready.statements
                )
            data = ready.plan.constant
            if ready.statements:
                run = self._transactions.run
                [[data]] = await run(catalog, http, caller, ready.statements, read_only=ready.read_only)
        except RequestRejected as rejected:
            return GraphQLResponse(rejected.stage, None, _formatted(rejected.errors), reported)
        except GraphQLError as error:
            return GraphQLResponse(Stage.EXECUTION, "null", _formatted((error,)), reported)
        except DatabaseError as error:
            if ready is not None and error.code.startswith(INTERNAL) and not error.at_value:
                error.at_value = await self._refuses_value(error, catalog, caller, http, ready)
            keys = () if ready is None else ready.plan.keys
            return GraphQLResponse(Stage.EXECUTION, "null", (_database_error(error, keys),), reported)
        except RecursionError:  # variables that were just read may still nest too deeply to compile
            deep = GraphQLError("The operation's arguments are nested too deeply.")
            return GraphQLResponse(Stage.VARIABLES, None, _formatted((deep,)), reported)
        return GraphQLResponse(Stage.EXECUTION, data, _formatted(ready.plan.errors), reported)

    async def _refuses_value(
        self, error: DatabaseError, catalog: Catalog, caller: Caller, http: Request, ready: _Ready
    ) -> bool:
        """Return whether PostgreSQL fails in the same way when it only reads one of the values."""
        try:
            for reading in ready.plan.readings(ready.variables):
                await self._transactions.run(catalog, http, caller, (reading,), read_only=True)
        except DatabaseError as refused:
            return refused.message == error.message
        return False

    def _role(self, catalog: Catalog, role: str) -> _RoleState:
        if self._served is None or self._names is None or not self._served.is_like(catalog):
            self._served = catalog
            self._names = CatalogNames(catalog)
            self._roles.clear()
        state = self._roles.get(role)
        if state is None:
            state = self._roles[role] = _RoleState(catalog, self._names, role, self._project)
        return state

    def _known(self, role: _RoleState, request: GraphQLRequest, text: str) -> _Ready | None:
        """Return what a request runs when its document and plan are cached, else None."""
        prepared = role.known(text) or role.alike(text)
        if prepared is None:
            return None
        try:
            operation = prepared.document.operation(request.operation_name)
            variables = {**operation.coerce(request.variables or {}), **prepared.literals}
            plan = role.plans.get((operation.key, operation.shape(variables)))
            if plan is None or (request.read_only and operation.is_mutation):
                return None
            check_cost(plan, variables, self._limits.cost)
            statements = plan.bind(variables)
        except (GraphQLError, RequestRejected):
            return None
        self.hits += 1
        return _Ready(plan, statements, not operation.is_mutation, variables)

    async def _ready(
        self, role: _RoleState, request: GraphQLRequest, text: str, reported: dict[str, Any] | None
    ) -> _Ready:
        """Return what the request runs, and report its cost where that is requested.

        An error of a document that shares its compiled form with other texts is found again
        in the exact document, so that it names its place in the client's own text.
        """
        prepared = role.known(text)
        if prepared is None:
            prepared = await in_turn(lambda: role.prepare(text, self._limits))
        try:
            ready = await self._bound(role, request, prepared, text, reported)
            if not ready.plan.errors or prepared.document.is_exact:
                return ready
        except (GraphQLError, RequestRejected):
            if prepared.document.is_exact:
                raise
        exact = await in_turn(lambda: role.exact(text, self._limits))
        return await self._bound(role, request, exact, text, reported)

    async def _bound(
        self,
        role: _RoleState,
        request: GraphQLRequest,
        prepared: PreparedDocument,
        text: str,
        reported: dict[str, Any] | None,
    ) -> _Ready:
        operation = prepared.document.operation(request.operation_name)
        if request.read_only and operation.is_mutation:
            raise RequestRejected(Stage.METHOD, GraphQLError("A mutation must be sent by POST, not by GET."))
        provided = await in_turn(lambda: operation.coerce(request.variables or {}))
        variables = {**provided, **prepared.literals}
        plan = await self._plan(role, operation, variables, text)
        try:
            return await self._checked(plan, variables, reported, read_only=not operation.is_mutation)
        except GraphQLError:
            if operation.is_mutation:
                raise
        plan = await self._plan(role, operation, variables, text, plan.failures(variables))
        return await self._checked(plan, variables, reported, read_only=True)

    async def _checked(
        self,
        plan: OperationPlan,
        variables: Mapping[str, Any],
        reported: dict[str, Any] | None,
        *,
        read_only: bool,
    ) -> _Ready:
        if reported is not None:
            reported["cost"] = {"rows": plan.cost(variables), "limit": self._limits.cost}
        check_cost(plan, variables, self._limits.cost)
        statements = await in_turn(lambda: plan.bind(variables))
        return _Ready(plan, statements, read_only, variables)

    async def _plan(
        self,
        role: _RoleState,
        operation: GraphQLOperation,
        variables: Mapping[str, Any],
        text: str,
        failed: Mapping[str, GraphQLError] = MappingProxyType({}),
    ) -> OperationPlan:
        """Return the operation's plan.

        :param text: that of its document.
        :param failed: the errors of a query's fields whose values cannot be bound, by response key.
        """
        key = operation.key, operation.shape(variables)
        plan = None if failed else role.plans.get(key)
        if plan is not None:
            self.hits += 1
            return plan
        self.misses += 1
        fields = root_fields(operation, variables)
        introspection = introspection_fields(fields)
        introspected: dict[str, str] = {}
        if introspection:
            name = operation.node.name
            introspected = await role.introspection.answer(
                operation, introspection, variables, f"{name.value if name else ''}:{text}"
            )
        if operation.is_mutation:
            plan = await in_turn(lambda: plan_mutation(operation, role.schema, variables, fields))
        else:
            plan = await in_turn(
                lambda: plan_query(operation, role.schema, variables, fields, introspected, failed)
            )
        # An introspection answer and an error may depend on a variable's value; an operation of a document
        # that is not cached never comes again.
        if introspection or plan.errors or len(text) > LONGEST_CACHED or plan.length > LONGEST_PLAN:
            return plan.unprepared()
        role.plans.put(key, plan, plan.weight)
        return plan


def _check_extensions(requested: RequestExtensions, caller: Caller) -> None:
    """Refuse what may not be reported to the caller.

    :raises RequestRejected: plans show what is in tables, so they are for ``service_role``.
    """
    if requested.explain and caller.role != SERVICE_ROLE:
        code = {"code": "EXPLAIN_NOT_ALLOWED"}
        error = GraphQLError(f"extensions.explain is for {SERVICE_ROLE}.", extensions=code)
        raise RequestRejected(Stage.VALIDATION, error)


def _may_be_outdated(answer: GraphQLResponse) -> bool:
    """Return whether the catalog may lack what a request names, so that nothing of the request happened."""
    if answer.stage in (Stage.VALIDATION, Stage.VARIABLES):
        return True
    codes = {error.get("extensions", {}).get("code") for error in answer.errors}
    return answer.data == "null" and not codes.isdisjoint(UNKNOWN_NAMES)


def _formatted(errors: tuple[GraphQLError, ...]) -> tuple[Mapping[str, Any], ...]:
    return tuple(dict(error.formatted) for error in errors)


def _database_error(error: DatabaseError, keys: tuple[str | None, ...]) -> Mapping[str, Any]:
    """Return what a client may read of PostgreSQL's error: the message, the SQLSTATE and the root field.

    Details and hints may show values of rows that the role may not see.

    :param keys: the response keys of the root fields, None for those that are not the database's.
    :raises RuntimeError: an internal error of PostgreSQL's, which is for the log alone; one that
        refuses a value is only what the type's author took no better code for.
    """
    if error.code.startswith(INTERNAL) and not error.at_value:
        raise RuntimeError(f"PostgreSQL failed: {error.code}: {error.message}") from error
    message, code = error.message, error.code
    fields = [key for key in keys if key is not None]
    violation = violation_in(code, message)
    if violation is not None:
        message, code = violation.reason, DATA_EXCEPTION
        fields = [key for place, key in enumerate(keys) if key is not None and place == violation.place]
    # Of several fields PostgreSQL does not say which one it was.
    place = {"path": fields} if len(fields) == 1 else {}
    return {"message": message, **place, "extensions": {"code": code}}
