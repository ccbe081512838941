"""Programs that the REST page offers return the same result as the request."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from support.daemon import JWT_SECRET, KEY, PATIENCE, Daemon
from support.node import CLIENTS, install, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from playwright.sync_api import Browser, Page
    from support.postgres import Server

SCHEMA = """
create table author (id int primary key, name text not null, born int);
create table book (
    id int primary key,
    author_id int references author,
    title text not null,
    pages int,
    words text[] not null default '{}',
    facts jsonb,
    sold int4range,
    "odd: name" text
);
insert into author values (1, 'Ada', 1815), (2, 'Bo, the "elder"', null), (3, 'Chiyo', 1703);
insert into book values
    (1, 1, 'Notes', 66, '{engine,notes}', '{"size": {"height": 20}}', '[1,5)', 'a'),
    (2, 1, 'Sketches, (early)', 12, '{engine}', null, '[5,9)', 'b"c'),
    (3, 2, 'It''s a \\ test & more', 200, '{"a,b"}', '{"size": {"height": 9}}', '[20,30)', null),
    (4, null, 'Nobody''s', null, '{}', null, null, null);
create table shelf (
    id int primary key,
    name text unique,
    room text default 'cellar',
    made timestamptz default '2026-01-01 00:00Z'
);
create function longer(than int, title_like text default '*') returns setof book stable language sql
    as $$ select * from book where pages > than and title like replace(title_like, '*', '%') $$;
create function double(number int) returns int immutable language sql as 'select number * 2';
create schema shop;
create table shop.item (id int primary key, name text);
insert into shop.item values (1, 'lamp'), (2, 'chair');
grant usage on schema shop to authenticated;
grant select on author, book to authenticated;
grant all on shelf, shop.item to authenticated;
"""

READS = [
    "book?select=id,title&id=in.(1,3)&order=id.desc",
    "book?select=id&title=in.(Notes,%22Sketches,%20(early)%22)&order=id",
    "book?select=id&title=eq.It's%20a%20%5C%20test%20%26%20more",
    "book?select=id&title=not.ilike.*O*&order=id",
    "book?select=id&title=like(any).%7BN*,S*%7D&order=id",
    "book?select=id&title=match.%5EN.*s$&order=id",
    "book?select=id&author_id=is.null",
    "book?select=id&author_id=not.is.null&order=id.desc.nullslast",
    "book?select=id&author_id=is.not_null&order=pages.asc.nullsfirst,id",
    "book?select=id&author_id=isdistinct.1&order=id",
    "book?select=id&words=cs.%7Bengine%7D&order=id&limit=1&offset=1",
    "book?select=id&words=ov.%7Bnotes,%22a,b%22%7D&order=id&offset=1",
    "book?select=id&words=cd.%7Bengine,notes%7D&order=id",
    "book?select=id&sold=sl.[6,9)&sold=adj.[5,9)",
    "book?select=id&facts-%3Esize-%3E%3Eheight=eq.20",
    "book?select=id,height:facts-%3Esize-%3Eheight,pages::text&order=facts-%3Esize-%3Eheight.desc.nullslast,id",
    "book?select=id&title=plfts.note",
    "book?select=id&title=wfts(english).sketch&id=neq.1",
    "book?select=id&or=(pages.gt.100,and(id.eq.1,title.eq.Notes))&order=id",
    "book?select=id&and=(pages.gte.12,pages.lte.66)&not.or=(id.eq.2)&order=id",
    "book?select=id&%22odd:%20name%22=eq.b%22c",
    "book?select=title,author(name,born)&author.name=eq.Ada&order=id",
    "book?select=title,by:author!inner(name)&by.or=(born.is.null,born.lt.1800)&order=id",
    "book?select=title,...author(name)&order=author(name).desc.nullslast,id",
    "author?select=name,book(id,title)&book.order=id.desc&book.limit=1&book.offset=1&order=id",
    "author?select=name,book(id)&book.pages=gt.50&book.not.and=(id.eq.3)&book=not.is.null&order=id",
    "author?select=name,book()&book=is.null",
    "author?limit=1&order=born.desc.nullslast",
    "rpc/longer?than=10&select=id&order=pages.desc&limit=2",
    "rpc/longer?than=10&title_like=N*&id=gt.0",
    "rpc/double?number=21",
]


@dataclass(frozen=True)
class Case:
    """A request that can be repeated, and its result.

    :ivar body: the JSON text to type, None for methods without a body.
    :ivar chosen: values to set in the form, by label.
    """

    target: str
    result: Any
    method: str = "GET"
    body: str | None = None
    chosen: Mapping[str, str] = field(default_factory=dict)


ROWS = {"Return": "representation"}
WRITES = [
    Case("shelf", [], "POST", '{"id": 9, "name": null}', {"Existing rows": "ignore-duplicates"}),
    Case(
        "shelf?select=id,name,room&columns=id,name,room",
        [{"id": 10, "name": 'it\'s \\ "odd"', "room": "cellar"}, {"id": 11, "name": "b", "room": "attic"}],
        "POST",
        '[{"id": 10, "name": "it\'s \\\\ \\"odd\\""}, {"id": 11, "name": "b", "room": "attic"}]',
        ROWS | {"Existing rows": "merge-duplicates", "Missing members": "default"},
    ),
    Case(
        "shelf?on_conflict=name",
        [],
        "POST",
        '[{"id": 12, "name": "b"}]',
        ROWS | {"Existing rows": "ignore-duplicates"},
    ),
    Case(
        "shelf?id=eq.11&select=id,room",
        [{"id": 11, "room": "hall"}],
        "PATCH",
        '{"room": "hall"}',
        ROWS | {"Maximum rows": "1"},
    ),
    Case("shelf?id=gt.10", [], "PATCH", '{"room": null}'),
    Case("shelf?id=eq.99", [], "DELETE", None, ROWS),
    Case(
        "shelf?id=eq.13&select=id,name",
        [{"id": 13, "name": "put"}],
        "PUT",
        '{"id": 13, "name": "put", "room": "hall"}',
        ROWS,
    ),
    Case(
        "shelf?select=id,made",
        [{"id": 20, "made": "2026-01-01T09:00:00+09:00"}],
        "POST",
        '{"id": 20, "name": "only tried"}',
        ROWS | {"Transaction": "rollback", "Time zone": "Asia/Tokyo"},
    ),
    Case("rpc/double", 42, "POST", '{"number": 21}'),
]


@dataclass(frozen=True)
class Copied:
    """A request with its result, and its programs by language."""

    case: Case
    programs: Mapping[str, str]


LANGUAGES = ("curl", "supabase-js", "postgrest-py")


@pytest.fixture(scope="module")
def daemon(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    database = server.create_database(SCHEMA)
    folder = tmp_path_factory.mktemp("programs")
    project = {"db-schemas": "public, shop", "db-tx-end": "commit-allow-override"}
    with Daemon(folder, database.uri, project=project) as made:
        made.wait_ready()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def token() -> str:
    """Return a user's token for the environment variables of the programs."""
    claims = {"role": "authenticated", "sub": "ada", "exp": int(time.time()) + 3600}
    return jwt.encode(claims, JWT_SECRET, "HS256")


@pytest.fixture(scope="module")
def copied(browser: Browser, daemon: Daemon, token: str) -> Iterator[list[Copied]]:
    """Yield all requests with the programs that the page offers for them."""
    context = browser.new_context(base_url=f"http://127.0.0.1:{daemon.port}")
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    who = json.dumps({"kind": "user", "apiKey": KEY, "token": token})
    page.add_init_script(f"sessionStorage.setItem('dataapi.identity', {json.dumps(who)})")
    page.goto("/console/rest")
    page.get_by_label("Table or function").locator("option", has_text="book").wait_for(state="attached")
    page.get_by_role("button", name="Code").click()
    cases = [Case(target, _fetch(daemon, token, target)) for target in READS]
    found = [Copied(case, programs) for case, programs in zip(cases, _read_programs(page), strict=True)]
    found += [Copied(case, _write_programs(page, case)) for case in WRITES]
    page.get_by_label("Schema").select_option("shop")
    page.get_by_label("Table or function").select_option("item")
    found.append(
        Copied(Case("item", [{"id": 1, "name": "lamp"}, {"id": 2, "name": "chair"}]), _programs(page))
    )
    yield found
    context.close()


def _fetch(daemon: Daemon, token: str, target: str) -> Any:
    """Return the result of a read after checking that it is not empty."""
    connection = HTTPConnection("127.0.0.1", daemon.port, timeout=PATIENCE)
    connection.request(
        "GET", f"/rest/v1/{target}", headers={"apikey": KEY, "Authorization": f"Bearer {token}"}
    )
    response = connection.getresponse()
    found = json.loads(response.read())
    connection.close()
    assert response.status == 200, (target, found)
    assert found not in ([], None), target
    return found


def _read_programs(page: Page) -> list[dict[str, str]]:
    """Return the programs of all reads. Each language is selected only once."""
    programs: list[dict[str, str]] = [{} for _ in READS]
    for language in LANGUAGES:
        page.get_by_role("button", name=language).click()
        for target, found in zip(READS, programs, strict=True):
            page.get_by_label("Address, after /rest/v1/").fill(target)
            found[language] = page.get_by_label("Program", exact=True).inner_text()
    return programs


def _write_programs(page: Page, case: Case) -> dict[str, str]:
    if case.target.startswith("rpc/"):
        page.get_by_label("Address, after /rest/v1/").fill(case.target)
    else:
        page.get_by_label("Table or function").select_option("shelf")
    page.get_by_role("button", name=case.method, exact=True).click()
    if case.body is not None:
        page.get_by_label("Body, as JSON").fill(case.body)
    for label, value in case.chosen.items():
        control = page.get_by_label(label)
        if control.evaluate("control => control.tagName") == "SELECT":
            control.select_option(value)
        else:
            control.fill(value)
    page.get_by_label("Address, after /rest/v1/").fill(case.target)
    return _programs(page)


def _programs(page: Page) -> dict[str, str]:
    found = {}
    for language in LANGUAGES:
        page.get_by_role("button", name=language).click()
        found[language] = page.get_by_label("Program", exact=True).inner_text()
    return found


def _differing(copied: list[Copied], printed: list[Any]) -> list[tuple[Case, Any]]:
    """Return cases whose program printed another result. Clients represent empty responses differently."""
    pairs = zip(copied, printed, strict=True)
    return [(each.case, found) for each, found in pairs if each.case.result != (found or [])]


def test_programs_do_not_contain_the_token(copied: list[Copied], token: str) -> None:
    assert [each.case for each in copied if any(token in text for text in each.programs.values())] == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_prints_the_result_of_the_request(copied: list[Copied], token: str) -> None:
    environ = {**os.environ, "TOKEN": token}
    printed = []
    for each in copied:
        command = each.programs["curl"].replace("curl ", "curl --silent --fail-with-body ", 1)
        done = subprocess.run(["/bin/sh", "-c", command], env=environ, capture_output=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        printed.append(json.loads(done.stdout or b"[]"))
    assert _differing(copied, printed) == []


def test_postgrest_py_returns_the_result_of_the_request(copied: list[Copied], token: str) -> None:
    pytest.importorskip("postgrest")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run_programs.py"))],
        input=json.dumps([each.programs["postgrest-py"] for each in copied]),
        env={**os.environ, "TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert _differing(copied, [first for first, *_ in json.loads(done.stdout)]) == []


@pytest.mark.time_limit(180)  # the first run installs the package
async def test_supabase_js_returns_the_result_of_the_request(
    copied: list[Copied],
    token: str,
    npm_clients: Path,
    tmp_path: Path,
    reactor: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await install(reactor, npm_clients, *CLIENTS)
    (tmp_path / "node_modules").symlink_to(npm_clients / "node_modules")
    source = tmp_path / "programs.json"
    source.write_text(json.dumps([each.programs["supabase-js"] for each in copied]))
    monkeypatch.setenv("TOKEN", token)
    runner = Path(__file__).with_name("run_programs.mjs")
    printed = await run_script(reactor, runner, str(tmp_path), str(source))
    assert _differing(copied, [first for first, *_ in json.loads(printed)]) == []
