"""The GraphQL engine of one project: documents to plans, plans to one message, its row to an answer."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from graphql import GraphQLError, GraphQLSchema

from dataapi.access.caller import Caller
from dataapi.access.transaction import Runner, Transactions, UnknownRole, catalog_for
from dataapi.cache import BoundedCache
from dataapi.catalog.freshness import UNKNOWN_NAMES, Refresh, as_it_is
from dataapi.catalog.model import Catalog
from dataapi.catalog.names import Names
from dataapi.catalog.relationships import Relationships
from dataapi.database.message import Bound
from dataapi.errors import DatabaseError
from dataapi.graphql.answer import Answer, GraphQLRequest, Stage
from dataapi.graphql.document import Document, Operation, Rejected
from dataapi.graphql.introspection import Introspection
from dataapi.graphql.lifting import coerce_literals, lift
from dataapi.graphql.limits import Limits
from dataapi.graphql.persisted import Documents, document_text
from dataapi.graphql.plan import Plan, check_cost, introspection_fields, plan_mutation, plan_query
from dataapi.graphql.schema import RoleSchema, role_view
from dataapi.graphql.wanted import Wanted
from dataapi.query.changes import RAISED
from dataapi.settings import Project
from dataapi.slices import in_turn
from dataapi.web.messages import Request

SHORT = 4_000
"""Characters of a document with its request's body, whose values are read at once and not in slices."""
INTERNAL = "XX"  # the class of PostgreSQL's internal errors
INVALID_TEXT, DATA_EXCEPTION = "22P02", "22000"
# The message of what a statement raises itself, and the number of the root field.
_RAISED = re.compile(f"{RAISED}(.*){RAISED}([0-9]{{1,9}}){RAISED}[0-9]+")

DOCUMENTS_PER_ROLE = 1_000
"""Documents that are kept parsed and validated for one role."""
DOCUMENT_BYTES = 12_000_000
"""Bytes that the documents that are kept for one role take.

This and ``PLAN_BYTES`` also bound how long a garbage collection takes, which looks at all that is kept.
"""
LONGEST_KEPT = 20_000
"""Characters of the longest document that is kept."""
PLANS_PER_ROLE = 5_000
"""Plans that are kept for one role."""
PLAN_BYTES = 6_000_000
"""Bytes that the plans that are kept for one role take."""
LONGEST_PLAN = 100_000
"""Characters of SQL in the longest plan that is kept, and whose statements are prepared."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document ready for a request.

    :ivar literals: the values of literals that were lifted out of the text, as variables.
    """

    document: Document
    literals: Mapping[str, Any]

    @property
    def weight(self) -> int:
        """Return about how many bytes it takes, with a document that may not be kept otherwise."""
        return self.document.weight + 2 * len(self.document.text) + 150 * len(self.literals)


@dataclass(frozen=True, slots=True)
class _Ready:
    """What a request runs."""

    plan: Plan
    statements: list[Bound]
    read_only: bool
    variables: Mapping[str, Any]


class _RoleState:
    """A role's schema and documents at one catalog generation."""

    def __init__(self, catalog: Catalog, names: Names, role: str, project: Project) -> None:
        self._view = role_view(catalog, names, role, project)
        self.schema = RoleSchema(self._view, strict=project.graphql_validation == "strict")
        self._documents: BoundedCache[Hashable, Document] = BoundedCache(
            DOCUMENTS_PER_ROLE, DOCUMENT_BYTES / 2
        )
        self._texts: BoundedCache[str, Prepared] = BoundedCache(DOCUMENTS_PER_ROLE, DOCUMENT_BYTES / 2)
        self.plans: BoundedCache[Hashable, Plan] = BoundedCache(PLANS_PER_ROLE, PLAN_BYTES)
        self.introspection = Introspection(self._introspected)

    def known(self, text: str) -> Prepared | None:
        """Return the cached document of a text, None when there is none."""
        return self._texts.get(text)

    def prepare(self, text: str, limits: Limits) -> Prepared:
        """Return the document of a text with the values of its literals.

        :raises Rejected: the document does not parse, exceeds a limit or is not valid.
        """
        prepared = self._prepare(text, limits)
        if len(text) <= LONGEST_KEPT:
            self._texts.put(text, prepared, prepared.weight)
        return prepared

    def _prepare(self, text: str, limits: Limits) -> Prepared:
        lifted = lift(text) if len(text) <= LONGEST_KEPT else None
        if lifted is None:
            return self.exact(text, limits)
        document = self._documents.get(lifted.shape) or self._documents.get((lifted.shape, lifted.pattern))
        if document is None:
            document = Document(text, self.schema, limits, lifted)
            self._documents.put(document.key, document, document.weight)
        literals = coerce_literals(lifted, document.literal_types)
        return self.exact(text, limits) if literals is None else Prepared(document, literals)

    def exact(self, text: str, limits: Limits) -> Prepared:
        """Return the document of exactly that text, its literals in it."""
        return Prepared(Document(text, self.schema, limits), {})

    def _introspected(self) -> GraphQLSchema | None:
        """Make the schema that introspection shows, sharing nothing that is made on demand."""
        view = self._view.introspectable()
        return None if view is None else RoleSchema(view.apart()).schema


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
        self._names: Names | None = None
        self.hits = 0
        self.misses = 0

    async def answer(self, request: GraphQLRequest, caller: Caller, http: Request) -> Answer:
        """Answer a request; raises ``ApiError`` when it cannot be answered at all.

        An unknown name may be one that nobody told us of: nothing has happened yet, so that the request is
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
    ) -> Answer:
        role = self._role(catalog, caller.role)
        wanted = Wanted.of(request.extensions)
        told: dict[str, Any] = {}
        ready: _Ready | None = None
        try:
            text = document_text(request, self._documents(), only=self._project.graphql_documents_only)
            wanted.check(caller)
            if not wanted.cost and len(text) + len(http.body) <= SHORT:
                ready = self._known(role, request, text)
            if ready is None:
                ready = await self._ready(role, request, text, told if wanted.cost else None)
            if wanted.explain:
                told["explain"] = await self._transactions.explain(catalog, http, caller, ready.statements)
            data = ready.plan.constant
            if ready.statements:
                run = self._transactions.run
                [[data]] = await run(catalog, http, caller, ready.statements, read_only=ready.read_only)
        except Rejected as rejected:
            return Answer(rejected.stage, None, _formatted(rejected.errors), told)
        except GraphQLError as error:
            return Answer(Stage.EXECUTION, "null", _formatted((error,)), told)
        except DatabaseError as error:
            if ready is not None and error.code.startswith(INTERNAL) and not error.at_value:
                error.at_value = await self._refuses_value(error, catalog, caller, http, ready)
            keys = () if ready is None else ready.plan.keys
            return Answer(Stage.EXECUTION, "null", (_database_error(error, keys),), told)
        except RecursionError:  # variables that were just read may still nest too deeply to compile
            deep = GraphQLError("The operation's arguments are nested too deeply.")
            return Answer(Stage.VARIABLES, None, _formatted((deep,)), told)
        return Answer(Stage.EXECUTION, data, _formatted(ready.plan.errors), told)

    async def _refuses_value(
        self, error: DatabaseError, catalog: Catalog, caller: Caller, http: Request, ready: _Ready
    ) -> bool:
        """Tell whether PostgreSQL fails in the same way when it does no more than read one of the values."""
        try:
            for reading in ready.plan.readings(ready.variables):
                await self._transactions.run(catalog, http, caller, (reading,), read_only=True)
        except DatabaseError as refused:
            return refused.message == error.message
        return False

    def _role(self, catalog: Catalog, role: str) -> _RoleState:
        if self._served is None or self._names is None or not self._served.is_like(catalog):
            self._served = catalog
            self._names = Names(catalog, Relationships(catalog))
            if self._roles:
                self._roles.clear()
                gc.unfreeze()  # a role's schema has cycles; see ``service.garbage``
        state = self._roles.get(role)
        if state is None:
            state = self._roles[role] = _RoleState(catalog, self._names, role, self._project)
        return state

    def _known(self, role: _RoleState, request: GraphQLRequest, text: str) -> _Ready | None:
        """Return what a request runs when its document and plan are cached, else None."""
        prepared = role.known(text)
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
        except (GraphQLError, Rejected):
            return None
        self.hits += 1
        return _Ready(plan, statements, not operation.is_mutation, variables)

    async def _ready(
        self, role: _RoleState, request: GraphQLRequest, text: str, told: dict[str, Any] | None
    ) -> _Ready:
        """Return what the request runs, and tell its cost where that is wanted.

        An error of a document that shares its compiled form with other texts is found again
        in the exact document, so that it tells its place in the client's own text.
        """
        prepared = role.known(text)
        if prepared is None:
            prepared = await in_turn(lambda: role.prepare(text, self._limits))
        try:
            ready = await self._bound(role, request, prepared, text, told)
            if not ready.plan.errors or prepared.document.is_exact:
                return ready
        except (GraphQLError, Rejected):
            if prepared.document.is_exact:
                raise
        exact = await in_turn(lambda: role.exact(text, self._limits))
        return await self._bound(role, request, exact, text, told)

    async def _bound(
        self,
        role: _RoleState,
        request: GraphQLRequest,
        prepared: Prepared,
        text: str,
        told: dict[str, Any] | None,
    ) -> _Ready:
        operation = prepared.document.operation(request.operation_name)
        if request.read_only and operation.is_mutation:
            raise Rejected(Stage.METHOD, GraphQLError("A mutation must be sent by POST, not by GET."))
        given = await in_turn(lambda: operation.coerce(request.variables or {}))
        variables = {**given, **prepared.literals}
        plan = await self._plan(role, operation, variables, text)
        try:
            return await self._checked(plan, variables, told, read_only=not operation.is_mutation)
        except GraphQLError:
            if operation.is_mutation:
                raise
        plan = await self._plan(role, operation, variables, text, plan.failures(variables))
        return await self._checked(plan, variables, told, read_only=True)

    async def _checked(
        self, plan: Plan, variables: Mapping[str, Any], told: dict[str, Any] | None, *, read_only: bool
    ) -> _Ready:
        if told is not None:
            told["cost"] = {"rows": plan.cost(variables), "limit": self._limits.cost}
        check_cost(plan, variables, self._limits.cost)
        statements = await in_turn(lambda: plan.bind(variables))
        return _Ready(plan, statements, read_only, variables)

    async def _plan(
        self,
        role: _RoleState,
        operation: Operation,
        variables: Mapping[str, Any],
        text: str,
        failed: Mapping[str, GraphQLError] = MappingProxyType({}),
    ) -> Plan:
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
        fields = introspection_fields(operation, role.schema, variables)
        introspected: dict[str, str] = {}
        if fields:
            name = operation.node.name
            introspected = await role.introspection.answer(
                operation, fields, variables, f"{name.value if name else ''}:{text}"
            )
        if operation.is_mutation:
            plan = await in_turn(lambda: plan_mutation(operation, role.schema, variables))
        else:
            plan = await in_turn(lambda: plan_query(operation, role.schema, variables, introspected, failed))
        # An introspection answer and an error may depend on a variable's value; an operation of a document
        # that is not kept never comes again.
        if fields or plan.errors or len(text) > LONGEST_KEPT or plan.length > LONGEST_PLAN:
            return plan.unprepared()
        role.plans.put(key, plan, plan.weight)
        return plan


def _may_be_outdated(answer: Answer) -> bool:
    """Tell whether the catalog may lack what a request names, so that nothing of the request happened."""
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
    asked = [key for key in keys if key is not None]
    refused = _RAISED.search(message) if code == INVALID_TEXT else None
    if refused is not None:
        message, code = refused[1], DATA_EXCEPTION
        asked = [key for number, key in enumerate(keys) if key is not None and number == int(refused[2])]
    # Of several fields PostgreSQL does not say which one it was.
    place = {"path": asked} if len(asked) == 1 else {}
    return {"message": message, **place, "extensions": {"code": code}}
