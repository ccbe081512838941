"""The GraphQL engine of one project: documents to plans, plans to one message, its row to an answer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping
from threading import Thread
from time import perf_counter
from typing import Any, NamedTuple

from graphql import GraphQLError, GraphQLSchema

from dataapi.auth.authenticator import SERVICE_ROLE
from dataapi.auth.caller import Caller
from dataapi.auth.transaction import (
    MultiMessageRunner,
    MultiMessageTransactions,
    UnknownRole,
    catalog_for,
)
from dataapi.catalog.model import Catalog
from dataapi.catalog.names import CatalogNames
from dataapi.catalog.reflect import OUTDATED, Refresh, as_it_is
from dataapi.concurrency.cache import BoundedCache
from dataapi.concurrency.tasks import in_turn
from dataapi.database.message import Bound
from dataapi.graphql import transport
from dataapi.graphql.document import (
    LONGEST_CACHED,
    Document,
    GraphQLOperation,
    Limits,
    PreparedDocument,
    RoleDocuments,
)
from dataapi.graphql.document_store import Documents, document_text
from dataapi.graphql.introspection import Introspection
from dataapi.graphql.literal_parameters import INTROSPECTING
from dataapi.graphql.plan import (
    OperationPlan,
    check_cost,
    introspection_fields,
    plan_mutation,
    plan_query,
    root_fields,
)
from dataapi.graphql.schema.role_schema import RoleSchema, catalog_view
from dataapi.graphql.separate_execution import run_separately
from dataapi.graphql.sources import client_key
from dataapi.graphql.transport import GraphQLRequest, GraphQLResponse, RequestRejected, Stage
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Operation, Reply, Request, StageEnd
from dataapi.settings import Project
from dataapi.sql.statement import violation_in

INTERNAL = "XX"  # the class of PostgreSQL's internal errors
DATA_EXCEPTION = "22000"

_SHORT = 4_000
"""Bytes of a request up to which its variables are read at once; longer ones are read in slices."""
PLANS_PER_ROLE = 5_000
"""Plans cached for one role."""
PLAN_BYTES = 6_000_000
"""Bytes that the plans cached for one role take."""
LONGEST_PLAN = 100_000
"""Characters of SQL in the longest plan that is cached, and whose statements are prepared."""


class _Execution(NamedTuple):
    """The statements of a request, with its coerced variables and the parameters of its document."""

    operation: GraphQLOperation
    plan: OperationPlan
    statements: list[Bound]
    variables: Mapping[str, Any]

    @property
    def keys(self) -> tuple[str | None, ...]:
        """The response keys of the root fields, None for those that are not the database's."""
        return tuple(None if key is None else client_key(key, self.variables) for key in self.plan.keys)


class _RoleState(RoleDocuments):
    """A role's schema, documents and plans at one catalog generation."""

    def __init__(
        self, catalog: Catalog, names: CatalogNames, role: str, project: Project, limits: Limits
    ) -> None:
        view = catalog_view(catalog, names, role, project)
        super().__init__(RoleSchema(view, strict=project.graphql_validation == "strict"), limits)
        self.plans: BoundedCache[Hashable, OperationPlan] = BoundedCache(PLANS_PER_ROLE, PLAN_BYTES)
        schemas = [self.schema]

        def introspected() -> GraphQLSchema | None:
            """Make the schema that introspection shows, sharing nothing that is made on demand."""
            usable = view.introspectable()
            if usable is None:
                return None
            schemas.append(RoleSchema(usable.copy_for_thread()))
            return schemas[-1].schema

        self.introspection = Introspection(introspected)
        # Every request that uses the schemas, and the thread that introspects, has it.
        weakref.finalize(self.introspection, _dismantle, schemas).atexit = False


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
    :ivar requests: requests that have come.
    """

    def __init__(
        self,
        project: Project,
        runner: MultiMessageRunner,
        catalog: Callable[[], Catalog | None],
        documents: Callable[[], Documents | None] = lambda: None,
        refresh: Refresh = as_it_is,
    ) -> None:
        self._project = project
        self._catalog = catalog
        self._documents = documents
        self._refresh = refresh
        self._transactions = MultiMessageTransactions(project, runner)
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
        self.requests = 0

    async def handle(self, http: Request, caller: Caller) -> Reply:
        """Answer a request over HTTP; raises ``ApiError`` when it cannot be answered at all."""
        request = transport.read(http)
        report = http.context.report
        report(StageEnd("parse", perf_counter()))
        if request.operation_name:
            report(Operation(request.operation_name))
        return transport.respond(await self.answer(request, caller, http), http)

    async def answer(self, request: GraphQLRequest, caller: Caller, http: Request) -> GraphQLResponse:
        """Answer a request; raises ``ApiError`` when it cannot be answered at all.

        A name or a type may be newer than the catalog: nothing has happened yet, so that the request is
        answered by a newer catalog where there is one.
        """
        self.requests += 1
        catalog = self._catalog()
        if catalog is None or catalog is not self._served or caller.role not in self._roles:
            catalog = await self._serve(catalog, caller)
        answer = await self._answer(request, caller, http, catalog)
        if answer.errors and _may_be_outdated(answer):
            newer = await self._refresh(catalog)
            if not newer.is_like(catalog):
                newer = await self._serve(newer, caller)
                return await self._answer(request, caller, http, newer)
        return answer

    async def _serve(self, catalog: Catalog | None, caller: Caller) -> Catalog:
        """Return a catalog that has the caller's role, with which the role is ready; raises ``ApiError``."""
        try:
            served = catalog_for(catalog, caller)
        except UnknownRole:
            assert catalog is not None
            served = catalog_for(await self._refresh(catalog), caller)  # the role may be a new one
        if self._names is None or not served.is_like(self._served):
            self._names = CatalogNames(served)
            self._roles.clear()
        self._served = served
        if caller.role not in self._roles:
            self._roles[caller.role] = _RoleState(
                served, self._names, caller.role, self._project, self._limits
            )
        return served

    async def _answer(
        self, request: GraphQLRequest, caller: Caller, http: Request, catalog: Catalog
    ) -> GraphQLResponse:
        """Find the document and the plan, bind the values, and run the statements."""
        role, extensions = self._roles[caller.role], request.extensions or {}
        reported: dict[str, Any] = {}
        execution: _Execution | None = None
        try:
            text = request.query
            if text is None or self._project.graphql_documents_only:
                text = document_text(request, self._documents(), only=self._project.graphql_documents_only)
            if len(http.body) + len(http.query) <= _SHORT and not extensions:
                execution = self._known(role, request, text)
            if execution is None:
                execution = await self._compiled(role, request, text, caller, reported)
            http.context.report(StageEnd("plan", perf_counter()))
            if extensions.get("explain") is True:
                reported["explain"] = await self._transactions.explain(
                    catalog, http, caller, execution.statements
                )
            data = execution.plan.constant
            if execution.plan.fields:
                fields, variables = execution.plan.fields, execution.variables
                data = await run_separately(self._transactions, catalog, http, caller, fields, variables)
            elif execution.statements:
                read_only = not execution.operation.is_mutation
                [[data]] = await self._transactions.run(
                    catalog, http, caller, execution.statements,
                    read_only=read_only,
                    by_replica=read_only and extensions.get("consistency") != "primary",
                )  # fmt: skip
        except DatabaseError as error:
            if execution is not None and error.code.startswith(INTERNAL) and not error.at_value:
                refused = await self._refuses_value(error, catalog, caller, http, execution)
                error = error.replaced(at_value=refused)
            keys = () if execution is None else execution.keys
            return GraphQLResponse(Stage.EXECUTION, "null", (_database_error(error, keys),), reported)
        except (RequestRejected, GraphQLError, RecursionError) as error:
            return _rejected(error, reported)
        errors, operation = execution.plan.errors, execution.operation
        formatted = _formatted(errors) if errors else ()
        return GraphQLResponse(Stage.EXECUTION, data, formatted, reported, operation.is_subscription)

    async def _refuses_value(
        self, error: DatabaseError, catalog: Catalog, caller: Caller, http: Request, execution: _Execution
    ) -> bool:
        """Return whether PostgreSQL fails in the same way when it only reads one of the values."""
        try:
            for reading in execution.plan.readings(execution.variables):
                await self._transactions.run(catalog, http, caller, (reading,), read_only=True)
        except DatabaseError as refused:
            return refused.message == error.message
        return False

    def _known(self, role: _RoleState, request: GraphQLRequest, text: str) -> _Execution | None:
        """Return the execution of a request whose document and plan are known.

        A mistake is left to ``_compile``, which finds its place in the client's own text.
        """
        prepared = role.texts.get(text)
        if prepared is None:
            return None
        try:
            operation, variables, shape = self._coerce(prepared, request)
            plan = role.plans.get((operation.key, shape))
            if plan is None or plan.maximum > self._limits.cost:
                return None
            statements = [each.bind(variables) for each in plan.statements]
            execution = _Execution(operation, plan, statements, variables)
        except (GraphQLError, RequestRejected):
            return None
        self.hits += 1
        return execution

    async def _compiled(
        self,
        role: _RoleState,
        request: GraphQLRequest,
        text: str,
        caller: Caller,
        reported: dict[str, Any],
    ) -> _Execution:
        """Return the execution of a request, compiled in slices if it takes long.

        :raises RequestRejected: it may not run.
        """
        extensions = request.extensions or {}
        if extensions.get("explain") is True and caller.role != SERVICE_ROLE:  # plans show values of tables
            code = {"code": "EXPLAIN_NOT_ALLOWED"}
            error = GraphQLError(f"extensions.explain is for {SERVICE_ROLE}.", extensions=code)
            raise RequestRejected(Stage.VALIDATION, error)
        introspected: Mapping[str, str] = {}
        if INTROSPECTING.search(text):
            introspected = await self._introspect(role, request, text)
        cost = reported if extensions.get("cost") is True else None
        return await in_turn(lambda: self._compile(role, request, text, introspected, cost))

    async def _introspect(self, role: _RoleState, request: GraphQLRequest, text: str) -> Mapping[str, str]:
        """Return the answers of the operation's introspection fields by response key, as JSON text."""
        prepared = await in_turn(lambda: role.prepare(text))
        if not prepared.document.is_exact:
            return {}
        operation, variables, _ = await in_turn(lambda: self._coerce(prepared, request))
        fields = introspection_fields(root_fields(operation, variables))
        if not fields:
            return {}
        name = operation.node.name.value if operation.node.name else ""
        return await role.introspection.answer(operation, fields, variables, f"{name}:{text}")

    def _compile(
        self,
        role: _RoleState,
        request: GraphQLRequest,
        text: str,
        introspected: Mapping[str, str],
        reported: dict[str, Any] | None,
    ) -> _Execution:
        """Return the execution of the request, from the caches as far as they have it.

        An error of a document that shares its compiled form with other texts is found again
        in the exact document, so that it names its place in the client's own text.
        """
        prepared = role.prepare(text)
        try:
            execution = self._bind(role, request, prepared, introspected, reported)
            if not execution.plan.errors or prepared.document.is_exact:
                return execution
        except (GraphQLError, RequestRejected):
            if prepared.document.is_exact:
                raise
        return self._bind(role, request, role.exact(text), introspected, reported)

    @staticmethod
    def _coerce(
        prepared: PreparedDocument, request: GraphQLRequest
    ) -> tuple[GraphQLOperation, dict[str, Any], Hashable]:
        """Return the operation of a request with its coerced variables and parameters, and their shape."""
        operation = prepared.document.operation(request.operation_name)
        if request.read_only and operation.is_mutation:
            raise RequestRejected(Stage.METHOD, "A mutation must be sent by POST, not by GET.")
        if operation.is_subscription and not request.by_events:
            message = "A subscription is answered as text/event-stream, which Accept must name first."
            raise RequestRejected(Stage.VALIDATION, message)
        return operation, *operation.coerce(request.variables or {}, prepared.parameters)

    def _bind(
        self,
        role: _RoleState,
        request: GraphQLRequest,
        prepared: PreparedDocument,
        introspected: Mapping[str, str],
        reported: dict[str, Any] | None,
        failed: Mapping[str, GraphQLError] | None = None,
    ) -> _Execution:
        """Return the execution of a document for a request, after a check of its cost.

        :param failed: the errors of a query's fields whose values cannot be bound, by response key; None
            before any was tried.
        """
        operation, variables, shape = self._coerce(prepared, request)
        plan = self._plan(role, prepared.document, operation, variables, shape, introspected, failed)
        try:
            if reported is not None:
                reported["cost"] = {"rows": plan.cost(variables), "limit": self._limits.cost}
            check_cost(plan, variables, self._limits.cost)
            statements = [each.bind(variables) for each in plan.statements]
            return _Execution(operation, plan, statements, variables)
        except GraphQLError:
            if operation.is_mutation or failed is not None:
                raise
        return self._bind(role, request, prepared, introspected, reported, plan.failures(variables))

    def _plan(
        self,
        role: _RoleState,
        document: Document,
        operation: GraphQLOperation,
        variables: Mapping[str, Any],
        shape: Hashable,
        introspected: Mapping[str, str],
        failed: Mapping[str, GraphQLError] | None,
    ) -> OperationPlan:
        """Return the operation's plan, from the cache if it is there."""
        key = operation.key, shape
        plan = None if failed else role.plans.get(key)
        if plan is not None:
            self.hits += 1
            return plan
        fields = root_fields(operation, variables)
        if operation.is_mutation:
            plan = plan_mutation(operation, role.schema, variables, fields)
        else:
            plan = plan_query(operation, role.schema, variables, fields, introspected, failed or {})
        self.misses += 1
        # An introspection answer and an error may depend on a variable's value, a constant names aliases; an
        # operation of a document that is not cached never comes again.
        if (
            introspected
            or plan.errors
            or not (plan.statements or document.is_exact)
            or len(document.text) > LONGEST_CACHED
            or plan.length > LONGEST_PLAN
        ):
            return plan.unprepared()
        role.plans.put(key, plan, plan.weight)
        return plan


def _may_be_outdated(answer: GraphQLResponse) -> bool:
    """Return whether the catalog may lack a name of the request, so that nothing has happened."""
    if answer.stage in (Stage.VALIDATION, Stage.VARIABLES):
        return True
    codes = {error.get("extensions", {}).get("code") for error in answer.errors}
    return answer.data == "null" and not codes.isdisjoint(OUTDATED)


def _rejected(
    error: RequestRejected | GraphQLError | RecursionError, reported: Mapping[str, Any]
) -> GraphQLResponse:
    match error:
        case RequestRejected(stage=stage, errors=errors):
            return GraphQLResponse(stage, None, _formatted(errors), reported)
        case GraphQLError():
            return GraphQLResponse(Stage.EXECUTION, "null", _formatted((error,)), reported)
    # Variables that were just read may still nest too deeply to compile.
    deep = GraphQLError("The operation's arguments are nested too deeply.")
    return GraphQLResponse(Stage.VARIABLES, None, _formatted((deep,)), reported)


def _formatted(errors: tuple[GraphQLError, ...]) -> tuple[Mapping[str, Any], ...]:
    return tuple(dict(error.formatted) for error in errors)


def _database_error(error: DatabaseError, keys: tuple[str | None, ...]) -> Mapping[str, Any]:
    """Return the part of PostgreSQL's error for the client: message, SQLSTATE and root field.

    Details and hints may show values of rows that the role may not see.

    :param keys: the response keys of the root fields, None for those that are not the database's.
    :raises RuntimeError: an internal error of PostgreSQL's, which is only for the log.  One that
        refuses a value is the client's, as the type's author only lacked a better code.
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
