"""Functions, errors and keys with the Python clients ``postgrest`` and ``supabase``.

The calls are those of the libraries' public documentation, and what it promises is what they must give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from postgrest import CountMethod
from postgrest.exceptions import APIError
from support.rest_clients import LIBRARIES, Call, check, error, make, names
from support.service import token

if TYPE_CHECKING:
    from support.service import Service

NORWAY = {"id": 1, "name": "Norway", "note": None}
CHILE = {"id": 2, "name": "Chile", "note": "long"}
NEPAL = {"id": 3, "name": "Nepal", "note": "high"}
NAMELESS = {"id": 4, "name": None, "note": None}

FUNCTIONS = [
    Call("rpc", lambda db: db.rpc("hello_world", {}), "Hello world"),
    Call("rpc with an argument", lambda db: db.rpc("echo", {"say": "👋"}), "👋"),
    Call("rpc with an array", lambda db: db.rpc("add_one_each", {"arr": [1, 2, 3]}), [2, 3, 4]),
    Call("rpc with JSON", lambda db: db.rpc("total", {"bill": {"a": 1.5, "b": 2}}), 3.5),
    Call("rpc without result", lambda db: db.rpc("do_nothing", {}), []),
    Call("rpc of rows", lambda db: db.rpc("list_countries", {}), [NORWAY, CHILE, NEPAL, NAMELESS]),
    Call("rpc filtered", lambda db: db.rpc("list_countries", {}).eq("id", 1).single(), NORWAY),
    Call("rpc selected", lambda db: db.rpc("list_countries", {}).select("name").limit(1), names("Norway")),
    Call("rpc ordered", lambda db: db.rpc("list_countries", {}).order("id", desc=True).limit(1), [NAMELESS]),
    Call("rpc of one row", lambda db: db.rpc("country_named", {"wanted": "Chile"}), CHILE),
    Call("rpc by GET", lambda db: db.rpc("echo", {"say": "a b"}, get=True), "a b"),
    Call("rpc by GET with an array", lambda db: db.rpc("add_one_each", {"arr": [1, 2]}, get=True), [2, 3]),
    Call("rpc by GET with JSON", lambda db: db.rpc("total", {"bill": {"a": 1}}, get=True), 1),
    Call(
        "rpc counted",
        lambda db: db.rpc("list_countries", {}, count=CountMethod.exact).limit(1),
        [NORWAY],
        count=4,
    ),
    Call(
        "rpc by HEAD",
        lambda db: db.rpc("list_countries", {}, count=CountMethod.exact, head=True),
        [],
        count=4,
    ),
    Call("rpc of another schema", lambda db: db.schema("backstage").rpc("whisper", {"word": "SHH"}), "shh"),
    Call("rpc as CSV", lambda db: db.rpc("list_countries", {}).lt("id", 2).csv(), "id,name,note\n1,Norway,"),
    Call("rpc with maybe_single", lambda db: db.rpc("list_countries", {}).eq("id", 9).maybe_single(), None),
]

ERRORS = [
    Call(
        "unknown table",
        lambda db: db.table("contry").select("*"),
        error=error(
            "PGRST205",
            "Could not find the table 'public.contry' in the schema cache",
            hint="Perhaps you meant the table 'public.country'",
        ),
    ),
    Call(
        "unknown column",
        lambda db: db.table("country").select("nothing"),
        error=error("42703", "column country.nothing does not exist"),
    ),
    Call(
        "unknown relationship",
        lambda db: db.table("country").select("player(name)"),
        error=error(
            "PGRST200",
            "Could not find a relationship between 'country' and 'player' in the schema cache",
            "Searched for a foreign key relationship between 'country' and 'player' in the schema 'public',"
            " but no matches were found.",
        ),
    ),
    Call(
        "value of another type",
        lambda db: db.table("country").select("*").eq("id", "one"),
        error=error("22P02", 'invalid input syntax for type bigint: "one"'),
    ),
    Call(
        "unknown operator",
        lambda db: db.table("country").select("*").filter("id", "equals", "1"),
        error=error(
            "PGRST100",
            '"failed to parse filter (equals.1)" (line 1, column 7)',
            'unexpected "u" expecting operator (eq, gt, ...)',
        ),
    ),
    Call(
        "forbidden table",
        lambda db: db.table("vault").select("*"),
        error=error("42501", "permission denied for table vault"),
    ),
    Call(
        "unknown schema",
        lambda db: db.schema("attic").table("prop").select("*"),
        error=error(
            "PGRST106",
            "Invalid schema: attic",
            hint="Only the following schemas are exposed: public, backstage",
        ),
    ),
    Call(
        "unknown function",
        lambda db: db.rpc("hello_word", {}),
        error=error(
            "PGRST202",
            "Could not find the function public.hello_word without parameters in the schema cache",
            "Searched for the function public.hello_word without parameters or with a single unnamed"
            " json/jsonb parameter, but no matches were found in the schema cache.",
            "Perhaps you meant to call the function public.hello_world",
        ),
    ),
    Call(
        "function that raises",
        lambda db: db.rpc("refuse", {}),
        error=error("P0001", "Out of tune", "The oboe", "Give an A"),
    ),
    Call(
        "function that raises a status",
        lambda db: db.rpc("refuse_politely", {}),
        error=error("PT402", "Payment required", "Two tickets", "Pay"),
    ),
    Call(
        "code of an error without body",
        lambda db: db.table("contry").select("*", head=True),
        error=error("PGRST205", "Not Found"),
    ),
    Call(
        "function that writes, by GET",
        lambda db: db.rpc("forget_countries", {}, get=True),
        error=error("25006", "cannot execute DELETE in a read-only transaction"),
    ),
]

CALLS = [*FUNCTIONS, *ERRORS]


@pytest.mark.parametrize("call", CALLS, ids=str)
async def test_functions_are_called_and_errors_raised(clients: Service, reactor: Any, call: Call) -> None:
    await check(reactor, clients, call)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_refusal_for_now_is_tried_again(clients: Service, reactor: Any, library: str) -> None:
    """503 is no error to the caller when the next try succeeds; the server learns how often it was tried."""
    response = await make(reactor, clients, library, lambda db: db.rpc("busy_once", {}, get=True))
    assert response.data == "1"


async def test_a_signed_in_user_is_known(clients: Service, reactor: Any) -> None:
    """``auth`` sends the user's token beside the project's key, and so does a header of the options."""
    signed = token("authenticated")
    response = await make(reactor, clients, "postgrest", lambda db: db.auth(signed).rpc("whoami", {}))
    assert response.data == "authenticated a user of authenticated"
    header = {"Authorization": f"Bearer {signed}"}
    response = await make(reactor, clients, "supabase", lambda db: db.rpc("whoami"), **header)
    assert response.data == "authenticated a user of authenticated"


@pytest.mark.parametrize("library", LIBRARIES)
async def test_an_unknown_key_is_refused(clients: Service, reactor: Any, library: str) -> None:
    with pytest.raises(APIError) as raised:
        await make(reactor, clients, library, lambda db: db.table("country").select("*"), apikey="nobody's")
    assert raised.value.message == "Invalid API key"
