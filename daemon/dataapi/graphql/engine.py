"""The GraphQL engine of one project: parse, plan, bind, execute, respond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from graphql import GraphQLError

from dataapi.auth.authenticator import SERVICE_ROLE
from dataapi.auth.caller import Caller
from dataapi.auth.transaction import MultiMessageRunner, MultiMessageTransactions, UnknownRole, catalog_for
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

INTERNAL = "XX"  # the SQLSTATE class of internal errors
DATA_EXCEPTION = "22000"

LONG = 20_000
"""Maximum size in bytes of a request whose variables are read in the reactor's thread.

Reading the variables of larger requests would delay other requests.
"""
SHORT = 3_000
"""Maximum size in bytes of a request, including its document, that the reactor's thread compiles.

Such a request takes milliseconds to compile.
"""


class RequestAttempt(NamedTuple):
    """An attempt to execute a request, with the results of earlier attempts.

    :ivar refreshed: whether the catalog is newer than that of the first attempt.
    :ivar exact: whether to use a document with exactly the request's text, so that errors have locations.
    :ivar failed: the errors of fields whose values cannot be bound, by response key. None until a field
        fails.
    """

    catalog: Catalog
    role: GraphQLRole
    refreshed: bool = False
    exact: bool = False
    failed: tuple[tuple[str, GraphQLError], ...] | None = None


class TryAgain(Exception):
    """Raised if the request must be executed again, as described by ``attempt``."""

    def __init__(self, attempt: RequestAttempt) -> None:
        super().__init__()
        self.attempt = attempt


class BoundOperation(NamedTuple):
    """An operation with the values of one request.

    ``extensions`` are the members of the response's ``extensions`` that are known before the operation runs.
    """

    operation: GraphQLOperation
    plan: OperationPlan
    statements: list[Bound]
    variables: Mapping[str, Any]
    extensions: Mapping[str, Any]

    @property
    def keys(self) -> tuple[str | None, ...]:
        return tuple(None if key is None else client_key(key, self.variables) for key in self.plan.keys)


class Engine:
    """Executes GraphQL requests.

    :param catalog: returns the current catalog, None if there is none yet.
    :param documents: returns the persisted documents, None if no folder is configured.
    :ivar hits, misses: numbers of requests with a cached plan, and with a plan that had to be compiled.
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
        self._current: Catalog | None = None
        self._roles: dict[str, GraphQLRole] = {}
        self._names: CatalogNames | None = None
        self.hits = 0
        self.misses = 0
        self.requests = 0

    async def handle(self, http: Request, caller: Caller) -> Reply:
        request = transport.read(http)
        report = http.context.report
        report(StageEnd("parse", perf_counter()))
        if request.operation_name:
            report(Operation(request.operation_name))
        return transport.respond(await self.execute(request, caller, http), http)

    async def execute(self, request: GraphQLRequest, caller: Caller, http: Request) -> GraphQLResponse:
        """Return the response to a request.

        A request that had no effect is retried at most once for each of these reasons:

        - A name or type is unknown, and the catalog was outdated. Afterwards, each of the other reasons may
          lead to another retry.
        - An error lacks a location, because requests with different literals share the document.
        - Values of some fields of a query cannot be bound. The retry executes the remaining fields.

        :raises ApiError: the database is unavailable, or the role does not exist.
        """
        self.requests += 1
        catalog = self._catalog()
        if catalog is None or catalog is not self._current or caller.role not in self._roles:
            catalog = await self._prepare_role(catalog, caller)
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
            newer = await self._prepare_role(newer, caller)
            attempt = RequestAttempt(newer, self._roles[caller.role], refreshed=True)

    async def _prepare_role(self, catalog: Catalog | None, caller: Caller) -> Catalog:
        """Return a catalog that contains the caller's role, and create the role's ``GraphQLRole``.

        :raises ApiError: there is no catalog, or the role does not exist.
        """
        try:
            current = catalog_for(catalog, caller)
        except UnknownRole:
            assert catalog is not None
            current = catalog_for(await self._refresh(catalog), caller)  # the role may be new
        if self._names is None or not current.has_same_content(self._current):
            self._names = CatalogNames(current)
            self._roles.clear()
        self._current = current
        if caller.role not in self._roles:
            self._roles[caller.role] = GraphQLRole(
                current, self._names, caller.role, self._project, self._limits
            )
        return current

    async def _respond(
        self, request: GraphQLRequest, caller: Caller, http: Request, attempt: RequestAttempt
    ) -> GraphQLResponse:
        catalog, requested = attempt.catalog, request.extensions or {}
        bound: BoundOperation | None = None
        extensions: Mapping[str, Any] = {}
        try:
            text = request.query
            if text is None or self._project.graphql_documents_only:
                text = document_text(request, self._documents(), only=self._project.graphql_documents_only)
            if requested.get("explain") is True and caller.role != SERVICE_ROLE:
                raise _explain_not_allowed()
            length = len(http.body) + len(http.query)
            if length <= LONG:
                bound = _bind(request, text, attempt, self._limits, may_compile=False)
            if bound is None:
                bound = await self._compiled(request, text, length, attempt)
            else:
                self.hits += 1
            extensions = bound.extensions
            http.context.report(StageEnd("plan", perf_counter()))
            if requested.get("explain") is True:
                plans = await self._transactions.explain(catalog, http, caller, bound.statements)
                extensions = {**extensions, "explain": plans}
            plan = bound.plan
            if plan.fields:
                data = await run_separately(
                    self._transactions, catalog, http, caller, plan.fields, bound.variables
                )
            elif not bound.statements:
                data = plan.constant(bound.variables)
            else:
                by_replica = plan.read_only and requested.get("consistency") != "primary"
                [[data]] = await self._transactions.run(
                    catalog, http, caller, bound.statements, read_only=plan.read_only, by_replica=by_replica
                )
        except DatabaseError as error:
            failure = await self._failure(error, bound, caller, http, catalog)
            return GraphQLResponse(Stage.EXECUTION, "null", (failure,), extensions)
        except (RequestRejected, GraphQLError, RecursionError) as error:
            return _rejected(error)
        errors = _formatted(plan.errors) if plan.errors else ()
        return GraphQLResponse(Stage.EXECUTION, data, errors, extensions, bound.operation.is_subscription)

    async def _compiled(
        self, request: GraphQLRequest, text: str, length: int, attempt: RequestAttempt
    ) -> BoundOperation:
        self.misses += 1
        work = partial(_bind, request, text, attempt, self._limits, may_compile=True)
        # Fragments can multiply the selected fields, and introspection visits every type.
        is_short = length + len(text) <= SHORT and "..." not in text and not INTROSPECTING.search(text)
        bound = work() if is_short else await self._worker.run(work)
        assert bound is not None, "may_compile is true"
        return bound

    async def _failure(
        self,
        error: DatabaseError,
        bound: BoundOperation | None,
        caller: Caller,
        http: Request,
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        if bound is not None and error.code.startswith(INTERNAL) and not error.at_value:
            rejected = await self._rejects_value(error, catalog, caller, http, bound)
            error = error.replaced(at_value=rejected)
        return _database_error(error, () if bound is None else bound.keys)

    async def _rejects_value(
        self, error: DatabaseError, catalog: Catalog, caller: Caller, http: Request, bound: BoundOperation
    ) -> bool:
        """Return whether parsing one of the values is enough for PostgreSQL to raise the same error."""
        try:
            for check in bound.plan.input_checks(bound.variables):
                await self._transactions.run(catalog, http, caller, (check,), read_only=True)
        except DatabaseError as rejection:
            return rejection.message == error.message
        return False


def _bind(
    request: GraphQLRequest, text: str, attempt: RequestAttempt, limits: Limits, *, may_compile: bool
) -> BoundOperation | None:
    """Find or create the document and the plan of a request, bind its values, and return the operation.

    :param may_compile: whether to create a document or plan that is not cached. If false, None is returned
        instead.
    :raises GraphQLError: an argument is invalid.
    :raises RequestRejected: the request is invalid.
    :raises TryAgain: another attempt is needed.
    """
    role = attempt.role
    prepared = None if attempt.exact else role.texts.get(text)
    if prepared is None:
        if not may_compile:
            return None
        prepared = role.exact(text) if attempt.exact else role.prepare(text)
    document = prepared.document
    try:
        operation = document.operation(request.operation_name)
        if operation.is_mutation or operation.is_subscription:
            _check_may_run(operation, request)
        plan_input, variables = operation.coerce(request.variables or {}, prepared.parameters)
        plan = None if attempt.failed else role.plans.get(plan_input)
        if not may_compile and (plan is None or plan.introspects):
            return None
        plan = plan or role.plan(document, operation, plan_input._replace(failed=attempt.failed or ()))
        if plan.errors and not document.is_exact:
            raise TryAgain(attempt._replace(exact=True))
        extensions: Mapping[str, Any] = {}
        if plan.maximum > limits.cost or request.extensions:
            extensions = check_cost(plan, variables, limits.cost, request)
        if plan.introspects:
            results = role.introspection.results(operation, plan_input, variables, text)
            variables = {**variables, **results}
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
    if plan.read_only and attempt.failed is None:
        return TryAgain(attempt._replace(failed=plan.failures(variables)))
    return RequestRejected(Stage.EXECUTION, error, extensions=extensions)


def _check_may_run(operation: GraphQLOperation, request: GraphQLRequest) -> None:
    if request.read_only and operation.is_mutation:
        raise RequestRejected(Stage.METHOD, "A mutation must be sent by POST, not by GET.")
    if operation.is_subscription and not request.by_events:
        message = "A subscription requires text/event-stream as the first media type of Accept."
        raise RequestRejected(Stage.VALIDATION, message)


def _explain_not_allowed() -> RequestRejected:
    """Return the error for a role that is not allowed to see plans. Plans contain values from tables."""
    code = {"code": "EXPLAIN_NOT_ALLOWED"}
    error = GraphQLError(f"extensions.explain requires the role {SERVICE_ROLE}.", extensions=code)
    return RequestRejected(Stage.VALIDATION, error)


def _may_be_outdated(response: GraphQLResponse) -> bool:
    """Return whether to retry with a newer catalog: it could change the response, and nothing was written."""
    if response.stage in (Stage.VALIDATION, Stage.VARIABLES):
        return True
    codes = {error.get("extensions", {}).get("code") for error in response.errors}
    return response.data == "null" and not codes.isdisjoint(OUTDATED_CODES)


def _rejected(error: RequestRejected | GraphQLError | RecursionError) -> GraphQLResponse:
    match error:
        case RequestRejected(stage=stage, errors=errors, extensions=extensions):
            data = "null" if stage is Stage.EXECUTION else None
            return GraphQLResponse(stage, data, _formatted(errors), extensions)
        case GraphQLError():
            return GraphQLResponse(Stage.EXECUTION, "null", _formatted((error,)))
    # Variables may be shallow enough to read and still too deep to compile.
    deep = GraphQLError("The operation's arguments are nested too deeply.")
    return GraphQLResponse(Stage.VARIABLES, None, _formatted((deep,)))


def _formatted(errors: tuple[GraphQLError, ...]) -> tuple[Mapping[str, Any], ...]:
    return tuple(dict(error.formatted) for error in errors)


def _database_error(error: DatabaseError, keys: tuple[str | None, ...]) -> Mapping[str, Any]:
    """Return PostgreSQL's error for the client: message, SQLSTATE and root field.

    Details and hints are omitted, because they may contain values of rows that the role is not allowed to
    see.

    :param keys: the response keys of the root fields, None for fields that need no database.
    :raises RuntimeError: PostgreSQL reported an internal error, and no invalid value caused it. The client
        does not see the message.
    """
    if error.code.startswith(INTERNAL) and not error.at_value:
        raise RuntimeError(f"PostgreSQL failed: {error.code}: {error.message}") from error
    message, code = error.message, error.code
    fields = [key for key in keys if key is not None]
    violation = violation_in(code, message)
    if violation is not None:
        message, code = violation.reason, DATA_EXCEPTION
        fields = [key for index, key in enumerate(keys) if key is not None and index == violation.index]
    # If there are several fields, PostgreSQL does not report which one failed.
    path = {"path": fields} if len(fields) == 1 else {}
    return {"message": message, **path, "extensions": {"code": code}}
