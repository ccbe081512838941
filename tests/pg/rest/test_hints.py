"""Hints for misspelled names in a schema with many names."""

from __future__ import annotations

import pytest
from support.service import Service

SCHEMA = """
do $$ begin for number in 1..1200 loop
    execute format('create table filler_%s (id int primary key)', number);
    execute format('create function fill_%s() returns int stable language sql as $f$ select 1 $f$', number);
end loop; end $$;
create table zebra (id int primary key);
create table stripe (id int primary key, zebra_id int references zebra);
grant all on zebra to service_role;
create function gallop() returns int stable language sql as 'select 1';
grant select on all tables in schema public to anon;
create table zebu (id int primary key);
do $$ begin
    execute 'create table wide (stripes int, '
        || (select string_agg(format('part_%s int', n), ',') from generate_series(1, 400) n) || ')';
end $$;
grant select on wide to anon;
"""


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("zebrra", "Perhaps you meant the table 'public.zebra'"),
        ("filer_77", "Perhaps you meant the table 'public.filler_77'"),
        # The role has no privileges on the closest match.
        ("zebuu", None),
        ("rpc/galop", "Perhaps you meant to call the function public.gallop"),
        ("rpc/fil_1200", "Perhaps you meant to call the function public.fill_1200"),
        ("zebra?select=filler_8(id)", None),
        ("stripes?select=id", "Perhaps you meant the table 'public.stripe'"),
        ("zebra?select=strip(id)", "Perhaps you meant 'stripe' instead of 'strip'."),
        ("filler_9?select=zebra(id)", None),
        ("wide?select=stripe", 'Perhaps you meant to reference the column "wide.stripes".'),
    ],
)
async def test_hints_work_in_schemas_with_many_names(service: Service, target: str, hint: str | None) -> None:
    response = await service.rest("GET", target)
    assert response.status >= 400
    assert response.body["hint"] == hint


@pytest.mark.parametrize(("target", "code"), [("zebra", "PGRST204"), ("rpc/gallop", "PGRST202")])
@pytest.mark.parametrize("body", ['{"id": 1}', '\n[{"id": 1}]'])
async def test_json_sent_as_a_form_is_detected(service: Service, target: str, code: str, body: str) -> None:
    """The default content type of curl is that of a form."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    response = await service.rest("POST", target, body, headers=form, role="service_role")
    assert response.body["code"] == code
    assert response.body["hint"] == (
        "The body was read as a form. Send JSON with the header Content-Type: application/json"
    )
