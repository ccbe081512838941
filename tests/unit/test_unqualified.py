"""Detection of SQL names that depend on the search path."""

from __future__ import annotations

import pytest
from support.unqualified import unqualified


@pytest.mark.parametrize(
    "sql",
    [
        "select 1 where a = b",
        "select a || b from t",
        "select -a from t",
        "select count(*) from t",
        'select "count"(*) from t',
        "select a in (1, 2) from t",
        "select nullif(a, 'x') from t",
        "select a is distinct from b from t",
        "select case a when 1 then 2 end from t",
        "select a like 'x%' from t",
        "select a between 1 and 2 from t",
        "select 1 from a join b using (id)",
        "select 1 from t limit $1 + 1",
        "update t set a = b + 1",
        "update t set a = 1 where b = 2",
        "insert into t values (1) on conflict (a) do update set b = lower(excluded.b)",
        "begin if a <> '' then perform f(); end if; end",
    ],
)
def test_unqualified_names_are_detected(sql: str) -> None:
    """Some keywords use an operator that PostgreSQL looks up in the search path."""
    assert unqualified(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t where a operator(pg_catalog.=) 'x = y'",
        """select pg_catalog.count(*), "a = b", E'\\'= b' from "s"."f"(1) as "t"("n") -- a = b""",
        "with q(n) as (select -1) select q.* from q",
        "select case when a then 1 else 2 end, coalesce(a, b), array[1], row(a)::text from t",
        "select a is distinct from null, a is not null from t",
        "select distinct on (a) * from (select 1 as a) as t",
        "update t set a = 1, b = '=' from u where a is true",
        'insert into t as x ("a") values (1) on conflict ("a") do update set "b" = excluded."b"',
        "prepare p(int, text) as select $1; execute p(%s,%s);",
        "select 'x'::numeric(10, 2), a::text[] from t",
        "set local search_path = 'x'",
        "select pg_catalog.set_config('search_path','pg_catalog',true);select count(*) where a = b",
    ],
)
def test_other_sql_is_accepted(sql: str) -> None:
    assert unqualified(sql) == []
