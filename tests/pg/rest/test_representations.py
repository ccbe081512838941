"""Rows returned by changes and functions show related rows and computed fields after the write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from support.service import Service

SCHEMA = """
create domain word as text not null;
create table author (id int primary key, name text, books int not null default 0);
create table book (id int primary key, title text, author int references author on update cascade);
create table tag (book int references book, name text);
create table line (book int references book, text text);
create table coded (id int primary key, code word, book int references book);
create table queued (id int primary key, author int references author);
create view author_name as select id, name from author;
create function tag_book() returns trigger security definer language plpgsql as $$ begin
    delete from tag where book = new.id;
    insert into tag values (new.id, 'of ' || new.title); return new; end $$;
create trigger tag_book after insert or update on book for each row execute function tag_book();
create function dequeue() returns trigger language plpgsql as $$ begin
    delete from queued where id = new.id; return null; end $$;
create trigger dequeue after insert on queued for each row execute function dequeue();
create function book_count(author) returns bigint stable language sql
    as 'select count(*) from book where author = $1.id';
create function tag_names(book) returns setof tag stable language sql
    as 'select * from tag where book = $1.id';
create function write_book(key int, owner int) returns setof book language sql
    as $$ insert into book values (key, 'written', owner); select * from book where id = key; $$;
create function write_author(key int) returns author language sql
    as $$ insert into author values (key, 'written'); insert into book values (key, 'first', key);
          select * from author where id = key; $$;
create function no_author() returns author language sql
    as $$ insert into author values (88, 'none'); select null::author $$;
grant all on all tables in schema public to anon;
revoke all on coded, line from authenticated;
grant select on author, book, tag to authenticated;
grant insert on book to authenticated;
grant insert, select (id, book) on coded to authenticated;
grant insert, select (book) on line to authenticated;
"""
RESET = """
truncate author, book, tag, line, coded, queued cascade;
insert into author values (1, 'Ada'), (2, 'Bob');
insert into book values (1, 'one', 1), (2, 'two', 1);
"""
PREFER = "return=representation"
MERGE = "return=representation, resolution=merge-duplicates"
ADA = {"name": "Ada", "book": [{"id": 1}, {"id": 2}, {"id": 3}]}


@pytest.fixture(scope="module")
def written(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve tables whose triggers write related rows."""
    with serving(reactor, server.create_database(SCHEMA)) as service:
        yield service


@pytest.mark.parametrize(
    ("method", "target", "body", "prefer", "status", "expected"),
    [
        (
            "POST", "book?select=id,author(name,book(id))&author.book.order=id",
            {"id": 3, "title": "three", "author": 1}, PREFER, 201, [{"id": 3, "author": ADA}],
        ),
        (
            "POST", "book?select=id,tag(name),tag_names(name)", [{"id": 3, "title": "three"}], PREFER, 201,
            [{"id": 3, "tag": [{"name": "of three"}], "tag_names": [{"name": "of three"}]}],
        ),
        (
            "POST", "book?select=id,...author(of:book_count)", {"id": 3, "author": 1}, PREFER, 201,
            [{"id": 3, "of": 3}],
        ),
        (
            "POST", "book?select=id,tag!inner(name)&order=id.desc",
            [{"id": 3, "title": "three"}, {"id": 4, "title": None}], PREFER, 201,
            [{"id": 4, "tag": [{"name": None}]}, {"id": 3, "tag": [{"name": "of three"}]}],
        ),
        (
            "POST", "book?select=id,author(book_count)&order=author(book_count)",
            [{"id": 3, "author": 1}, {"id": 4, "author": 2}], PREFER, 201,
            [{"id": 4, "author": {"book_count": 1}}, {"id": 3, "author": {"book_count": 3}}],
        ),
        (
            "PATCH", "book?id=eq.2&select=title,author(name,book_count),tag(name)",
            {"title": "new", "author": 2}, PREFER, 200,
            [{"title": "new", "author": {"name": "Bob", "book_count": 1}, "tag": [{"name": "of new"}]}],
        ),
        (
            "PATCH", "author?id=eq.1&select=id,book(author)", {"id": 7}, PREFER, 200,
            [{"id": 7, "book": [{"author": 7}, {"author": 7}]}],
        ),
        (
            "PATCH", "book?select=id,tag(name)&order=id", [{"id": 1, "title": "x"}, {"id": 2, "title": "y"}],
            "return=representation, resolution=match", 200,
            [{"id": 1, "tag": [{"name": "of x"}]}, {"id": 2, "tag": [{"name": "of y"}]}],
        ),
        (
            "POST", "book?select=id,tag(name)&order=id", [{"id": 2, "title": "y"}, {"id": 3, "title": "z"}],
            MERGE, 201, [{"id": 2, "tag": [{"name": "of y"}]}, {"id": 3, "tag": [{"name": "of z"}]}],
        ),
        (
            "POST", "book?select=id,tag(name)", [{"id": 2, "title": "y"}], MERGE, 200,
            [{"id": 2, "tag": [{"name": "of y"}]}],
        ),
        (
            "PUT", "book?id=eq.2&select=id,tag(name)", {"id": 2, "title": "y"}, PREFER, 200,
            [{"id": 2, "tag": [{"name": "of y"}]}],
        ),
        (
            "PUT", "book?id=eq.9&select=id,tag(name)", {"id": 9, "title": "y"}, PREFER, 201,
            [{"id": 9, "tag": [{"name": "of y"}]}],
        ),
        ("POST", "line?select=text,book(title,line(text))", {"book": 1, "text": "t"}, PREFER, 201, [
            {"text": "t", "book": {"title": "one", "line": [{"text": "t"}]}}]),
        ("POST", "coded?select=code,book(coded(code))", {"id": 1, "code": "c", "book": 1}, PREFER, 201, [
            {"code": "c", "book": {"coded": [{"code": "c"}]}}]),
        (
            "POST", "queued?select=id,author(name)", {"id": 1, "author": 1}, PREFER, 201,
            [{"id": 1, "author": {"name": "Ada"}}],
        ),
        (
            "POST", "author_name?select=name,book(id)", {"id": 5, "name": "E"}, PREFER, 201,
            [{"name": "E", "book": []}],
        ),
        (
            "DELETE", "tag?book=eq.1&select=name,book(id,tag(name))", None, PREFER, 200,
            [{"name": "of one", "book": {"id": 1, "tag": [{"name": "of one"}]}}],
        ),
        (
            "POST", "rpc/write_book?select=id,author(name,book(id))&author.book.order=id&id=eq.3",
            {"key": 3, "owner": 1}, "", 200, [{"id": 3, "author": ADA}],
        ),
        (
            "POST", "rpc/write_author?select=name,book_count,book(title)", {"key": 5}, "", 200,
            {"name": "written", "book_count": 1, "book": [{"title": "first"}]},
        ),
        (
            "POST", "rpc/no_author?select=id,book_count,book(title)", {}, "", 200,
            {"id": None, "book_count": 0, "book": []},
        ),
    ],
)  # fmt: skip
async def test_returned_rows_show_the_state_after_the_write(
    written: Service, method: str, target: str, body: Any, prefer: str, status: int, expected: Any
) -> None:
    written.database.execute(RESET)
    response = await written.rest(method, target, body, headers={"prefer": prefer} if prefer else {})
    assert (response.status, response.body) == (status, expected)


@pytest.mark.parametrize(
    ("target", "body", "expected"),
    [
        ("book?select=id,tag(name)", {"id": 3, "title": "t"}, [{"id": 3, "tag": [{"name": "of t"}]}]),
        # The role may not read the column "code", so the statement cannot use values of the row type.
        ("coded?select=id,book(title)", {"id": 3, "code": "c", "book": 1}, [
            {"id": 3, "book": {"title": "one"}}]),
        ("line?select=book(title)", {"book": 1, "text": "t"}, [{"book": {"title": "one"}}]),
    ],
)  # fmt: skip
async def test_returning_related_rows_needs_no_additional_privilege(
    written: Service, target: str, body: Any, expected: Any
) -> None:
    written.database.execute(RESET)
    headers = {"prefer": PREFER}
    response = await written.rest("POST", target, body, headers=headers, role="authenticated")
    assert (response.status, response.body) == (201, expected)


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "status"),
    [
        ("POST", "book?select=id,tag(name)", [{"id": 3}, {"id": 4}], {"accept": "object"}, 406),
        ("PUT", "book?id=eq.3&select=id,tag(name)", {"id": 4, "title": "t"}, {}, 400),
        (
            "PATCH", "book?select=id,tag(name)", {"title": "t"},
            {"prefer": f"{PREFER}, max-affected=1, handling=strict"}, 400,
        ),
        (
            "POST", "rpc/write_book?select=id,tag(name)&id=eq.9", {"key": 3, "owner": 1},
            {"accept": "object"}, 406,
        ),
    ],
)  # fmt: skip
async def test_rejected_response_rolls_back_the_write(
    written: Service, method: str, target: str, body: Any, headers: dict[str, str], status: int
) -> None:
    written.database.execute(RESET)
    sent = {"prefer": PREFER, **headers}
    if "accept" in sent:
        sent["accept"] = "application/vnd.pgrst.object+json"
    response = await written.rest(method, target, body, headers=sent)
    assert response.status == status, response.text
    assert written.database.execute("select id, title from book order by id") == [(1, "one"), (2, "two")]


async def test_plain_columns_need_only_one_statement(written: Service) -> None:
    written.database.execute(RESET)
    for target, count in [("book", 1), ("book?select=n:title,id::text", 1), ("book?select=id,tag(name)", 2)]:
        response = await written.rest("PATCH", target, {"author": 2}, headers={"prefer": PREFER})
        assert (response.status, len(response.statements)) == (200, count), target
