"""Columns of every PostgreSQL type can be selected, filtered and ordered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
do $$
declare kind record;
begin
    create table every (id int primary key);
    for kind in
        select typname from pg_type t
        where typnamespace = 'pg_catalog'::regnamespace and typtype in ('b', 'r', 'm')
            and (typelem = 0 or typcategory = 'A') and typinput <> 0
    loop
        begin
            execute format('alter table every add %I pg_catalog.%I', 'c_' || kind.typname, kind.typname);
        exception when others then null;  -- a pseudo-type in disguise makes no column
        end;
    end loop;
end $$;
insert into every (id) values (1);
grant select on every to anon;
"""


@pytest.fixture(scope="module")
def every(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA)) as service:
        yield service


async def test_every_type_can_be_selected_filtered_and_ordered(every: Service) -> None:
    schema = every.schema()
    names = [name for name in schema.object_type("every").fields if name.startswith("c_")]
    assert len(names) > 130
    failures = []

    async def check(query: str) -> None:
        response = await every.ask(query, check=False)
        if "errors" in response.body:
            failures.append((query, response.error))

    for start in range(0, len(names), 40):
        some = " ".join(names[start : start + 40])
        await check(f"{{ everyCollection {{ edges {{ node {{ {some} }} }} }} }}")
    filters = schema.object_type("everyFilter").fields
    for name in names:
        if name not in filters:
            continue
        operators = filters[name].type.fields
        nulls = " ".join(f"{{{name}: {{{operator}: null}}}}" for operator in operators if operator != "is")
        lists = " ".join(
            f"{{{name}: {{{operator}: []}}}}"
            for operator, field in operators.items()
            if str(field.type).startswith("[")
        )
        condition = f"{{or: [{nulls} {lists} {{{name}: {{is: NULL}}}}]}}"
        await check(f"{{ everyCollection(filter: {condition}) {{ edges {{ cursor }} }} }}")
    for name in schema.object_type("everyOrderBy").fields:
        await check(f"{{ everyCollection(orderBy: {{{name}: DescNullsFirst}}) {{ edges {{ cursor }} }} }}")
    assert failures == []


async def test_every_type_except_json_can_be_compared_with_null(every: Service) -> None:
    schema = every.schema()
    names = {name for name in schema.object_type("every").fields if name.startswith("c_")}
    filters = schema.object_type("everyFilter").fields
    assert names.difference(filters) == {"c_json", "c_jsonb"}
    for name in ("c_point", "c_xml", "c__xml", "c_jsonpath", "c__json", "c__jsonb"):
        assert name not in names or list(filters[name].type.fields) == ["is"]
    for word, count in (("NULL", 1), ("NOT_NULL", 0)):
        condition = " ".join(f"{name}: {{is: {word}}}" for name in filters if name in names)
        assert len(await every.ids("every", f"filter: {{{condition}}}")) == count
