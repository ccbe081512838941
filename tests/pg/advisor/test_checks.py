"""Each check of the advisor: schemas with the problem, its fix, and similar schemas without the problem.

Each file in ``cases`` is named after a check. ``-- Fault: OBJECT`` begins a schema with one finding, and
``-- Similar: REASON`` a schema without one. Both comments can name versions of PostgreSQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dataapi.advisor.checks import CHECKS
from dataapi.database.script import connected
from dataapi.service.inspection import advise, read_catalog
from dataapi.settings import Project

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dataapi.advisor.checks import SchemaFinding
    from dataapi.service.inspection import Fetch
    from support.postgres import Database, Server

RESET = """
drop schema if exists private cascade;
drop schema public cascade;
create schema public;
grant usage on schema public to public;
create schema private;
create function caller() returns text stable language sql as
    $$ select nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub' $$;
create table note (id int primary key, owner text, public boolean);
alter table note enable row level security;
grant select, insert, update, delete on note to authenticated;
"""
"""Creates the objects that all cases share: schemas, a function, and a protected table."""

_CASE = re.compile(
    r"^-- (Fault|Similar)(?: \(PostgreSQL (\d+) (?:and (\d+)|or later)\))?: (.*)\n((?:(?!-- ).*\n?)*)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Case:
    """A schema and the object that the expected finding names.

    :ivar object: None if there should be no finding.
    :ivar title: the object, or the reason why there should be no finding.
    :ivar versions: major versions of PostgreSQL with this expected result.
    """

    check: str
    object: str | None
    title: str
    sql: str
    versions: range


def read_cases() -> Iterator[Case]:
    for path in sorted((Path(__file__).parent / "cases").iterdir()):
        text = path.read_text("utf-8")
        found = list(_CASE.finditer(text))
        assert len(found) == text.count("\n--") + 1, path
        for kind, first, last, title, sql in (match.groups() for match in found):
            versions = range(int(first or 13), int(last or 98) + 1)
            yield Case(path.stem, title if kind == "Fault" else None, title, sql, versions)


CASES = list(read_cases())
FAULTS = [case for case in CASES if case.object]
SIMILAR = [case for case in CASES if not case.object]


def name_of(case: Case) -> str:
    return f"{case.check}: {case.title}"


class Advised:
    """A database that each case resets, and the advisor's connection to the database."""

    def __init__(self, server: Server, database: Database, fetch: Fetch) -> None:
        self.database = database
        self._version = server.version
        self._project = Project("abcdefghijklmnopqrst", "acme", database.uri)
        self._fetch = fetch
        self._catalog = read_catalog(self._project)

    def create(self, case: Case) -> None:
        """Create the schema of a case, or skip the test if the case is for other versions of PostgreSQL."""
        if self._version not in case.versions:
            pytest.skip("this case is for other versions of PostgreSQL")
        self.database.execute(RESET + case.sql)

    def find(self, check: str) -> list[SchemaFinding]:
        found = advise(self._project, self._fetch, self._catalog)
        return [finding for finding in found if finding.check == check]


@pytest.fixture(scope="module")
def advised(server: Server) -> Iterator[Advised]:
    database = server.create_database()
    with connected(database.uri) as fetch:
        yield Advised(server, database, fetch)


@pytest.mark.parametrize("case", FAULTS, ids=name_of)
def test_fix_removes_the_finding(advised: Advised, case: Case) -> None:
    advised.create(case)
    [finding] = advised.find(case.check)
    assert finding.object == case.object
    assert finding.why
    advised.database.execute(finding.fix)
    assert advised.find(case.check) == []


@pytest.mark.parametrize("case", SIMILAR, ids=name_of)
def test_similar_schema_is_not_reported(advised: Advised, case: Case) -> None:
    advised.create(case)
    assert advised.find(case.check) == []


def test_every_check_has_cases() -> None:
    assert {case.check for case in FAULTS} == {case.check for case in SIMILAR} == set(CHECKS)


def test_objects_of_extensions_are_not_reported(server: Server, advised: Advised) -> None:
    server.require("pgcrypto")
    advised.database.execute(f"{RESET} create table t (id int); grant select on t to anon")
    assert len(advised.find("table-without-row-security")) == 1
    advised.database.execute("create extension pgcrypto; alter extension pgcrypto add table t")
    assert advised.find("table-without-row-security") == []
    advised.database.execute("drop extension pgcrypto")


@pytest.mark.parametrize(
    ("check", "policies"),
    [
        (
            "several-permissive-policies",
            "create policy own on note to authenticated using (owner = 'a')"
            " with check (owner = 'a' or id > 90);"
            "create policy shown on note for select to authenticated using (public);"
            "create policy odd on note for update to authenticated using (id = 4) with check (owner = 'd');"
            "create policy added on note for insert to authenticated with check (owner = 'c')",
        ),
        (
            "policy-calls-function-per-row",
            "create policy own on note to authenticated using (owner = caller() or public)"
            " with check (coalesce(caller(), 'z') in (owner, 'c'))",
        ),
    ],
)
def test_fix_of_policies_allows_the_same_rows(advised: Advised, check: str, policies: str) -> None:
    statements = ["select array_agg(id order by id) from note"]
    for owner in "acd":
        statements += [f"update note set owner = '{owner}' where id = {id_}" for id_ in (1, 2, 3, 4)]
        statements += [f"insert into note values ({id_}, '{owner}')" for id_ in (9, 99)]
    statements += [f"delete from note where id = {id_}" for id_ in (1, 2, 3, 4)]

    def allowed() -> Sequence[object]:
        return advised.database.execute(_ATTEMPT, (statements,))

    advised.database.execute(
        f"{RESET} insert into note values (1, 'a', false), (2, 'b', true), (3, 'c', false), (4, null, false);"
        f"{_TRY} {policies}"
    )
    before = allowed()
    [finding] = advised.find(check)
    advised.database.execute(finding.fix)
    assert allowed() == before
    assert len({str(each) for each in before}) > 2


_TRY = """
create function attempt(statement text) returns text language plpgsql as $$
declare
    result text;
    number int;
begin
    if statement like 'select %' then
        execute statement into result;
        return result;
    end if;
    execute statement;
    get diagnostics number = row_count;
    raise exception 'changed %', number;
exception when others then
    return sqlerrm;
end $$;
"""
"""Returns the result of a statement and rolls the statement back."""
_ATTEMPT = """
set role authenticated;
set request.jwt.claims = '{"sub": "a"}';
select attempt(statement) from unnest(%s) as statement;
"""
