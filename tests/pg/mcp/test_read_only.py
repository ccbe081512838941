"""PostgreSQL rejects every write by an agent unless mcp-writes is on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from dataapi.auth.caller import Caller
from dataapi.http.errors import ApiError
from dataapi.http.messages import Request, RequestContext
from dataapi.rest import batch
from support.agent import Agent

if TYPE_CHECKING:
    from support.service import Service

SCHEMA = """
create table log (id serial primary key, body text);
create function write_log(body text) returns int language sql volatile as
    'insert into log (body) values (body) returning id';
create function through_stable() returns int language plpgsql stable as
    'begin return public.write_log(''x''); end';
create function unlock() returns int language plpgsql volatile as
    'begin perform set_config(''transaction_read_only'', ''off'', true); return public.write_log(''x''); end';
create function overloaded(a int) returns int language sql stable as 'select a';
create function overloaded(a int, b int) returns int language sql volatile as
    'select public.write_log(''x'')';
create function volatile_reader() returns int language sql volatile as 'select 5';
create view trap as select public.write_log('x') as id;
grant all on log, trap to anon;
grant all on sequence log_id_seq to anon;
"""
PROJECT = {"tools": False}


@pytest.mark.parametrize(
    ("function", "arguments", "code"),
    [
        ("write_log", {"body": "x"}, "25006"),
        ("through_stable", {}, "25006"),
        ("unlock", {}, "25001"),
        ("overloaded", {"a": 1, "b": 2}, "25006"),
    ],
)
async def test_functions_cannot_write(
    service: Service, function: str, arguments: dict[str, object], code: str
) -> None:
    error = await Agent(service).fail("call_function", function=function, arguments=arguments)
    assert error["code"] == code, error
    assert service.database.execute("select count(*) from log") == [(0,)]


async def test_same_role_may_write_over_rest(service: Service) -> None:
    assert (await service.rest("POST", "rpc/write_log", {"body": "x"})).status == 200
    service.database.execute("truncate log")


async def test_views_cannot_write(service: Service) -> None:
    assert (await Agent(service).fail("read_rows", table="trap"))["code"] == "25006"


async def test_functions_that_only_read_work(service: Service) -> None:
    agent = Agent(service)
    assert (await agent.call("call_function", function="volatile_reader"))["result"] == 5
    assert (await agent.call("call_function", function="overloaded", arguments={"a": 1}))["result"] == 1


async def test_every_message_of_an_agent_is_a_read_only_transaction(service: Service) -> None:
    agent = Agent(service)
    await agent.call("call_function", function="volatile_reader")
    await agent.call("read_rows", table="log")
    assert [message.read_only for answer in agent.answers for message in answer.messages] == [True, True]


ROW = '{"body":"x"}'
BATCH = json.dumps({"requests": [{"method": "POST", "path": "/log", "body": {"body": "x"}}]})
CONDITION = {"if-match": "*", "content-type": "application/json"}
MUTATION = json.dumps(
    {"query": 'mutation { insertIntologCollection(objects: [{body: "x"}]) { affectedCount } }'}
)


@pytest.mark.parametrize(
    "request_",
    [
        Request("", "POST", "/rest/v1/log", "", {"content-type": "application/json"}, ROW.encode()),
        Request("", "PATCH", "/rest/v1/log", "id=eq.1", CONDITION, ROW.encode()),
        Request("", "POST", "/rest/v1/", "", {"content-type": batch.MEDIA_TYPE}, BATCH.encode()),
    ],
    ids=["insert", "conditional", "batch"],
)
async def test_read_only_request_cannot_write(service: Service, request_: Request) -> None:
    service.database.execute("insert into log values (1, 'old')")
    try:
        with pytest.raises(ApiError) as refused:
            await service.handler.handle(read_only(request_), Caller("anon", "{}"))
        assert refused.value.code == "25006"
        assert service.database.execute("select body from log") == [("old",)]
    finally:
        service.database.execute("truncate log")


async def test_read_only_mutation_cannot_write(service: Service) -> None:
    headers = {"content-type": "application/json"}
    mutation = Request("", "POST", "/graphql/v1", "", headers, MUTATION.encode())
    reply = await service.engine.handle(read_only(mutation), Caller("anon", "{}"))
    assert reply.code == "25006", reply.body
    assert service.database.execute("select count(*) from log") == [(0,)]


def read_only(request: Request) -> Request:
    return request._replace(context=RequestContext(read_only=True))
