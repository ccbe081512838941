"""CSV bodies by REST: what is written by them, and what comes back as CSV."""

from __future__ import annotations

import csv
import io

from hypothesis import given, settings
from hypothesis import strategies as st
from support import writing
from support.service import Service

SCHEMA, RESET = writing.SCHEMA, writing.RESET

SHOWN = {"prefer": "return=representation"}


CSV = {"content-type": "text/csv", "prefer": "return=representation"}


async def test_lines_are_inserted_as_rows(api: Service) -> None:
    """Texts are read by the columns' types; the word for null is null, an empty cell an empty text."""
    body = 'id,title,price,tags,facts\n7,"a,b",1.5,"{x,y}","{""k"": [1]}"\n8,,NULL,NULL,NULL\n'
    answer = await api.rest("POST", "book?select=id,title,price,tags", body, headers=CSV)
    assert answer.status == 201
    assert answer.body == [
        {"id": 7, "title": "a,b", "price": 1.50, "tags": ["x", "y"]},
        {"id": 8, "title": "", "price": None, "tags": None},
    ]


async def test_chosen_columns_of_lines(api: Service) -> None:
    """Others are left to their defaults."""
    body = "id,name,extra\n7,a,x\n8,b,y\n"
    answer = await api.rest("POST", "counter?columns=name&select=id,name,extra", body, headers=CSV)
    assert answer.body == [
        {"id": 3, "name": "a", "extra": "standard"},
        {"id": 4, "name": "b", "extra": "standard"},
    ]


async def test_a_header_alone_inserts_nothing(api: Service) -> None:
    """It is 201 all the same."""
    answer = await api.rest("POST", "author", "id,name\n", headers=CSV)
    assert (answer.status, answer.body) == (201, [])


async def test_lines_of_other_lengths_are_refused(api: Service) -> None:
    """It is 400 with PGRST102, and nothing is inserted."""
    answer = await api.rest("POST", "author", "id,name\n7,a\n8", headers=CSV)
    assert (answer.status, answer.body["code"]) == (400, "PGRST102")
    assert answer.body["message"] == "All lines must have same number of fields"
    answer = await api.rest("POST", "author", "id,nope\n7,a\n", headers=CSV)
    assert (answer.status, answer.body["code"]) == (400, "PGRST204")
    assert api.database.execute("select count(*) from author") == [(2,)]


async def test_lines_merge_and_change_too(api: Service) -> None:
    """An upsert, a put and an update take CSV as they take JSON."""
    merge = {**CSV, "prefer": "resolution=merge-duplicates, return=representation"}
    answer = await api.rest("POST", "author", "id,name\n1,x\n9,y", headers=merge)
    assert (answer.status, answer.body) == (201, [{"id": 1, "name": "x"}, {"id": 9, "name": "y"}])
    answer = await api.rest("PUT", "author?id=eq.1", "id,name\n1,z", headers=CSV)
    assert (answer.status, answer.body) == (200, [{"id": 1, "name": "z"}])
    answer = await api.rest("PATCH", "author?id=eq.9", "name\nw", headers=CSV)
    assert (answer.status, answer.body) == (200, [{"id": 9, "name": "w"}])


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@given(st.lists(CELLS, min_size=1, max_size=8))
@settings(max_examples=30)
async def test_what_is_written_as_csv_can_be_read_as_csv(service: Service, texts: list[str]) -> None:
    """Any texts come back the same; only the one word for null does not."""
    rows = [[str(number), text] for number, text in enumerate(texts, 100)]
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows([["id", "word"], *rows])
    answer = await service.rest("POST", "told?select=id", written.getvalue(), headers=CSV)
    assert answer.status == 202
    answer = await service.rest("DELETE", "told?order=id", headers={**SHOWN, "accept": "text/csv"})
    found = list(csv.reader(io.StringIO(answer.text, newline="")))
    assert found == [["id", "word"], *([number, "" if text == "NULL" else text] for number, text in rows)]
