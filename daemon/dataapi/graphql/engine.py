"""The GraphQL engine of one project: document, plan, bind, run, respond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from graphql import GraphQLError

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
from dataapi.catalog.reflect import OUTDATED_CODES, Refresh, no_refresh
from dataapi.concurrency.tasks import WorkerThread
from dataapi.database.message import Bound
from dataapi.graphql import transport
from dataapi.graphql.document import GraphQLOperation, Limits
from dataapi.graphql.document_store import Documents, document_text
from dataapi.graphql.literal_parameters import INTROSPECTING
from dataapi.graphql.plan import OperationPlan, check_cost
from dataapi.graphql.role import GraphQLRole
from dataapi.graphql.separate_execution import run_separately
from dataapi.graphql.sources import client_key
from dataapi.graphql.transport import GraphQLRequest, GraphQLResponse, RequestRejected, Stage
from dataapi.http.errors import DatabaseError
from dataapi.http.messages import Operation, Reply, Request, StageEnd
from dataapi.settings import Project
from dataapi.sql.statement import violation_in

INTERNAL = "XX"  # the class of PostgreSQL's internal errors
DATA_EXCEPTION = "22000"

LONG = 20_000
"""Bytes of a request beyond which reading its variables takes long."""
SHORT = 3_000
"""Bytes of a request and characters of its document up to which it is compiled in some milliseconds."""


class RequestAttempt(NamedTuple):
    """How a request is tried. A later attempt may depend on an earlier one.

    :ivar refreshed: whether the catalog is newer than the one that the request met first.
    :ivar exact: whether the document is that of exactly the request's text, for the locations of errors.
    :ivar failed: the errors of a query's fields whose values cannot be bound, by response key; None before
        any was tried.
    """

    catalog: Catalog
    role: GraphQLRole
    refreshed: bool = False
    exact: bool = False
    failed: tuple[tuple[str, GraphQLError], ...] | None = None


class TryAgain(Exception):
    """Raised for a request that must be tried in another way."""

    def __init__(self, attempt: RequestAttempt) -> None:
        super().__init__()
        self.attempt = attempt


class BoundOperation(NamedTuple):
    """An operation with the values of one request.

    :ivar variables: the coerced variables, and the parameters of the document.
    :ivar extensions: the members of the response's ``extensions`` that are known before it runs.
    """

    operation: GraphQLOperation
    plan: OperationPlan
    statements: list[Bound]
    variables: Mapping[str, Any]
    extensions: Mapping[str, Any]

    @property
    def keys(self) -> tuple[str | None, ...]:
        """The response keys of the root fields, None for fields that the database does not answer."""
        return tuple(None if key is None else client_key(key, self.variables) for key in self.plan.keys)


class Engine:
    """Answers GraphQL requests.

    :param catalog: returns the snapshot that serves now, None while there is none.
    :param documents: returns the persisted documents, None when no folder has any.
    :param refresh: makes sure that a catalog is not outdated.
    :param worker: runs what takes long.
    :ivar requests: requests that have come.
    :ivar hits, misses: requests whose plan was cached, and those whose plan was compiled.
    """

    def __init__(
        self,
        project: Project,
        runner: MultiMessageRunner,
        catalog: Callable[[], Catalog | None],
        documents: Callable[[], Documents | None] = lambda: None,
        refresh: Refresh = no_refresh,
        worker: WorkerThread | None = None,
    ) -> None:
        self._project = project
        self._catalog = catalog
        self._documents = documents
        self._refresh = refresh
        self._worker = worker or WorkerThread()
        self._transactions = MultiMessageTransactions(project, runner)
        self._limits = Limits(
            project.graphql_max_depth,
            project.graphql_max_aliases,
            project.graphql_max_tokens,
            project.graphql_max_cost,
        )
        self._served: Catalog | None = None
        self._roles: dict[str, GraphQLRole] = {}
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

        Nothing has happened yet when it is tried again, for each of these reasons at most once, and for the
        second and third again after the first:

        - A name or a type may be newer than the catalog, and there is a newer one.
        - An error of a document that others share lacks its place in the client's own text.
        - Values of some fields of a query cannot be bound: the others are answered.
        """
        self.requests += 1
        catalog = self._catalog()
        if catalog is None or catalog is not self._served or caller.role not in self._roles:
            catalog = await self._serve(catalog, caller)
        attempt = RequestAttempt(catalog, self._roles[caller.role])
        while True:
            try:
                response = await self._respond(request, caller, http, attempt)
            except TryAgain as again:
                attempt = again.attempt
                continue
            if attempt.refreshed or not response.errors or not _may_be_outdated(response):
                return response
            newer = await self._refresh(attempt.catalog)
            if newer.has_same_content(attempt.catalog):
                return response
            newer = await self._serve(newer, caller)
            attempt = RequestAttempt(newer, self._roles[caller.role], refreshed=True)

    async def _serve(self, catalog: Catalog | None, caller: Caller) -> Catalog:
        """Return a catalog that has the caller's role, with which the role is ready; raises ``ApiError``."""
        try:
            served = catalog_for(catalog, caller)
        except UnknownRole:
            assert catalog is not None
            served = catalog_for(await self._refresh(catalog), caller)  # the role may be a new one
        if self._names is None or not served.has_same_content(self._served):
            self._names = CatalogNames(served)
            self._roles.clear()
        self._served = served
        if caller.role not in self._roles:
            self._roles[caller.role] = GraphQLRole(
                served, self._names, caller.role, self._project, self._limits
            )
        return served

    async def _respond(
        self, request: GraphQLRequest, caller: Caller, http: Request, attempt: RequestAttempt
    ) -> GraphQLResponse:
        """Answer a request in one way: document, plan, bind, run, respond.

        :raises TryAgain: it must be tried in another way.
        """
        catalog, wanted = attempt.catalog, request.extensions or {}
        bound: BoundOperation | None = None
        extensions: Mapping[str, Any] = {}
        try:
            text = request.query
            if text is None or self._project.graphql_documents_only:
                text = document_text(request, self._documents(), only=self._project.graphql_documents_only)
            if wanted.get("explain") is True and caller.role != SERVICE_ROLE:
                raise _explain_not_allowed()
            length = len(http.body) + len(http.query)
            if length <= LONG:
                bound = _bind(request, text, attempt, self._limits, compiles=False)
            if bound is None:
                bound = await self._compiled(request, text, length, attempt)
            else:
                self.hits += 1
            extensions = bound.extensions
            http.context.report(StageEnd("plan", perf_counter()))
            if wanted.get("explain") is True:
                plans = await self._transactions.explain(catalog, http, caller, bound.statements)
                extensions = {**extensions, "explain": plans}
            data = await self._run(bound, caller, http, catalog, wanted)
        except DatabaseError as error:
            failure = await self._failure(error, bound, caller, http, catalog)
            return GraphQLResponse(Stage.EXECUTION, "null", (failure,), extensions)
        except (RequestRejected, GraphQLError, RecursionError) as error:
            return _rejected(error)
        errors = _formatted(bound.plan.errors) if bound.plan.errors else ()
        return GraphQLResponse(Stage.EXECUTION, data, errors, extensions, bound.operation.is_subscription)

    async def _compiled(
        self, request: GraphQLRequest, text: str, length: int, attempt: RequestAttempt
    ) -> BoundOperation:
        """Return the operation of a request with its values, made on the worker thread if that takes long.

        :param length: the length of the request.
        """
        self.misses += 1
        work = partial(_bind, request, text, attempt, self._limits, compiles=True)
        # A few fragments that spread others select much, and introspection walks every type.
        is_short = length + len(text) <= SHORT and "..." not in text and not INTROSPECTING.search(text)
        bound = work() if is_short else await self._worker.run(work)
        assert bound is not None, "what was not known was compiled"
        return bound

    async def _run(
        self,
        bound: BoundOperation,
        caller: Caller,
        http: Request,
        catalog: Catalog,
        wanted: Mapping[str, Any],
    ) -> str:
        """Run the statements and return the data as JSON text.

        :param wanted: the request's ``extensions``.
        """
        plan = bound.plan
        if plan.fields:
            return await run_separately(
                self._transactions, catalog, http, caller, plan.fields, bound.variables
            )
        if not bound.statements:
            return plan.constant(bound.variables)
        by_replica = plan.read_only and wanted.get("consistency") != "primary"
        [[data]] = await self._transactions.run(
            catalog, http, caller, bound.statements, read_only=plan.read_only, by_replica=by_replica
        )
        text: str = data
        return text

    async def _failure(
        self,
        error: DatabaseError,
        bound: BoundOperation | None,
        caller: Caller,
        http: Request,
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        if bound is not None and error.code.startswith(INTERNAL) and not error.at_value:
            refused = await self._refuses_value(error, catalog, caller, http, bound)
            error = error.replaced(at_value=refused)
        return _database_error(error, () if bound is None else bound.keys)

    async def _refuses_value(
        self, error: DatabaseError, catalog: Catalog, caller: Caller, http: Request, bound: BoundOperation
    ) -> bool:
        """Return whether PostgreSQL fails in the same way when it only reads one of the values."""
        try:
            for reading in bound.plan.readings(bound.variables):
                await self._transactions.run(catalog, http, caller, (reading,), read_only=True)
        except DatabaseError as refused:
            return refused.message == error.message
        return False


def _bind(
    request: GraphQLRequest, text: str, attempt: RequestAttempt, limits: Limits, *, compiles: bool
) -> BoundOperation | None:
    """Return the operation of a request with its values: document, plan, bind.

    :param compiles: whether to make a document and a plan that are not cached, else return None.
    :raises RequestRejected: the request is not valid.
    :raises GraphQLError: an argument is not valid.
    :raises TryAgain: the request must be tried in another way.
    """
    role = attempt.role
    prepared = None if attempt.exact else role.texts.get(text)
    if prepared is None:
        if not compiles:
            return None
        prepared = role.exact(text) if attempt.exact else role.prepare(text)
    document = prepared.document
    try:
        operation = document.operation(request.operation_name)
        if operation.is_mutation or operation.is_subscription:
            _check_may_run(operation, request)
        plan_input, variables = operation.coerce(request.variables or {}, prepared.parameters)
        plan = None if attempt.failed else role.plans.get(plan_input)
        if not compiles and (plan is None or plan.introspects):
            return None
        plan = plan or role.plan(document, operation, plan_input._replace(failed=attempt.failed or ()))
        if plan.errors and not document.is_exact:
            raise TryAgain(attempt._replace(exact=True))
        extensions: Mapping[str, Any] = {}
        if plan.maximum > limits.cost or request.extensions:
            extensions = check_cost(plan, variables, limits.cost, request)
        if plan.introspects:
            answers = role.introspection.answers(operation, plan_input, variables, text)
            variables = {**variables, **answers}
        statements = []
        try:
            for each in plan.statements:
                statements.append(each.bind(variables))
        except GraphQLError as error:
            if not document.is_exact:
                raise
            raise _unbindable(error, plan, variables, attempt, extensions) from None
    except (GraphQLError, RequestRejected):
        if document.is_exact:
            raise
        raise TryAgain(attempt._replace(exact=True)) from None
    return BoundOperation(operation, plan, statements, variables, extensions)


def _unbindable(
    error: GraphQLError,
    plan: OperationPlan,
    variables: Mapping[str, Any],
    attempt: RequestAttempt,
    extensions: Mapping[str, Any],
) -> Exception:
    """Return the exception for a value that cannot be bound: a query is tried again without its field.

    That is done with the exact document, whose errors have their places.
    """
    if plan.read_only and attempt.failed is None:
        return TryAgain(attempt._replace(failed=plan.failures(variables)))
    return RequestRejected(Stage.EXECUTION, error, extensions=extensions)


def _check_may_run(operation: GraphQLOperation, request: GraphQLRequest) -> None:
    if request.read_only and operation.is_mutation:
        raise RequestRejected(Stage.METHOD, "A mutation must be sent by POST, not by GET.")
    if operation.is_subscription and not request.by_events:
        message = "A subscription is answered as text/event-stream, which Accept must name first."
        raise RequestRejected(Stage.VALIDATION, message)


def _explain_not_allowed() -> RequestRejected:
    """Return the error of a request for plans. Plans show values of tables."""
    code = {"code": "EXPLAIN_NOT_ALLOWED"}
    error = GraphQLError(f"extensions.explain is for {SERVICE_ROLE}.", extensions=code)
    return RequestRejected(Stage.VALIDATION, error)


def _may_be_outdated(answer: GraphQLResponse) -> bool:
    """Return whether the catalog may lack a name of the request, so that nothing has happened."""
    if answer.stage in (Stage.VALIDATION, Stage.VARIABLES):
        return True
    codes = {error.get("extensions", {}).get("code") for error in answer.errors}
    return answer.data == "null" and not codes.isdisjoint(OUTDATED_CODES)


def _rejected(error: RequestRejected | GraphQLError | RecursionError) -> GraphQLResponse:
    match error:
        case RequestRejected(stage=stage, errors=errors, extensions=extensions):
            data = "null" if stage is Stage.EXECUTION else None
            return GraphQLResponse(stage, data, _formatted(errors), extensions)
        case GraphQLError():
            return GraphQLResponse(Stage.EXECUTION, "null", _formatted((error,)))
    # Variables that were just read may still nest too deeply to compile.
    deep = GraphQLError("The operation's arguments are nested too deeply.")
    return GraphQLResponse(Stage.VARIABLES, None, _formatted((deep,)))


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
        fields = [key for place, key in enumerate(keys) if key is not None and place == violation.index]
    # Of several fields PostgreSQL does not say which one it was.
    place = {"path": fields} if len(fields) == 1 else {}
    return {"message": message, **place, "extensions": {"code": code}}
