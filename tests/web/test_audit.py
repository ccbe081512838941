"""The ``graphql-http`` audits against our transport, with graphql-core as the engine behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dataapi.auth.caller import Caller
from dataapi.graphql.transport import GraphQLRequest, GraphQLResponse, Stage
from dataapi.http.messages import Request
from dataapi.web.app import make_site
from graphql import GraphQLError, OperationDefinitionNode, build_schema, execute_sync, parse, validate
from graphql.execution.values import get_variable_values
from support.audit import AUDITS, audit
from support.memory_http import KEY, Web, typename

SCHEMA = build_schema("type Query { greeting: String } type Mutation { greet: String }")


async def engine(request: GraphQLRequest, _caller: Caller, _http: Request) -> GraphQLResponse:
    """Answer by graphql-core, stage by stage."""
    try:
        document = parse(request.query or "")
    except GraphQLError as error:
        return GraphQLResponse(Stage.PARSE, None, (dict(error.formatted),))
    errors = validate(SCHEMA, document)
    if errors:
        return GraphQLResponse(Stage.VALIDATION, None, tuple(dict(error.formatted) for error in errors))
    operation = document.definitions[0]
    assert isinstance(operation, OperationDefinitionNode)
    if request.read_only and operation.operation.value != "query":
        return GraphQLResponse(Stage.METHOD, None, ({"message": "Mutations need POST"},))
    variables = dict(request.variables or {})
    coerced = get_variable_values(SCHEMA, operation.variable_definitions or (), variables)
    if isinstance(coerced, list):
        return GraphQLResponse(Stage.VARIABLES, None, tuple(dict(error.formatted) for error in coerced))
    result = execute_sync(SCHEMA, document, variable_values=variables, operation_name=request.operation_name)
    return GraphQLResponse(Stage.EXECUTION, json.dumps(result.data))


async def _audited(reactor: Any, npm_audit: Path, web: Web) -> list[dict[str, Any]]:
    """Return what the audits find of a server on a port of its own."""
    site = make_site(web.backends, reactor, web.served.append)
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    try:
        url = f"http://127.0.0.1:{port.getHost().port}/graphql/v1"
        return await audit(reactor, npm_audit, url, {"apikey": KEY})
    finally:
        await port.stopListening()
        await site.drain(1)


@pytest.mark.time_limit(180)
async def test_every_audit_of_graphql_over_http_passes(reactor: Any, npm_audit: Path) -> None:
    results = await _audited(reactor, npm_audit, Web(engine))
    assert [result for result in results if result["status"] != "ok"] == []
    assert len(results) == AUDITS


@pytest.mark.time_limit(180)
async def test_the_audits_notice_a_server_that_does_not_conform(reactor: Any, npm_audit: Path) -> None:
    """Without this a silent failure of the audits would look like a pass."""
    results = await _audited(reactor, npm_audit, Web(typename))
    failed = {result["id"] for result in results if result["status"] != "ok"}
    assert {"556A", "74FF", "86EE", "9C48"} <= failed
