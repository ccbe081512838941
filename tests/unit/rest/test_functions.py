"""Which of several functions a request calls, by the names of what it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dataapi.catalog.model import Argument, Catalog, Function, Type, TypeKind, Volatility
from dataapi.http.errors import ApiError
from dataapi.rest.parse.request import CallShape
from dataapi.rest.plan.functions import choose, is_callable
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterable

TYPES = {name: number for number, name in enumerate(("integer", "json", "text", "bytea"), 100)}
CATALOG = Catalog(
    generation=1,
    search_path=("api",),
    schemas={},
    types={oid: Type(oid, "pg_catalog", name, TypeKind.BASE, sql_name=name) for name, oid in TYPES.items()},
    tables={},
    foreign_keys=(),
    functions=(),
    roles={},
)


def function(*arguments: str, type_: str = "integer") -> Function:
    listed = tuple(
        Argument(text.rstrip("="), TYPES[type_], "1" if text.endswith("=") else None) for text in arguments
    )
    oid = hash(arguments) % 1000
    return Function(oid, "api", "f", listed, 100, False, 0, (), Volatility.STABLE, (), None, ())


def chosen(candidates: Iterable[Function], *names: str, media_type: str | None = None) -> Function | None:
    """Return the function that takes the names."""
    found = choose(CATALOG, list(candidates), CallShape(frozenset(names), media_type))
    return None if found is None else found.function


def test_required_arguments_must_all_be_given_and_nothing_unknown() -> None:
    one = function("a", "b", "c=", "d=")
    for names in ("ab", "abc", "abd", "abcd"):
        assert chosen([one], *names) is one
    for names in ("", "a", "acd", "abe"):
        assert chosen([one], *names) is None


def test_a_function_of_optional_arguments_takes_any_of_them() -> None:
    one = function("a=", "b=")
    for names in ("", "a", "b", "ab"):
        assert chosen([one], *names) is one
    assert chosen([one], "c") is None


def test_a_function_of_no_arguments_takes_none() -> None:
    none = function()
    assert chosen([none]) is none
    assert chosen([none], media_type="application/json") is none
    assert chosen([none], "a") is None
    assert chosen([none], media_type="text/plain") is None


def test_the_whole_body_is_taken_when_no_function_takes_the_names() -> None:
    whole, named = function("", type_="json"), function("a")
    assert chosen([whole, named], "a", media_type="application/json") is named
    assert chosen([whole, named], "b", media_type="application/json") is whole
    assert chosen([whole], media_type="text/plain") is None
    assert chosen([function("", type_="bytea")], media_type="application/octet-stream") is not None
    assert chosen([whole]) is None


def test_several_that_fit_are_ambiguous() -> None:
    """PGRST203 with 300, naming each with its arguments and their types, in an order of their own."""
    candidates = [function("a", "b="), function("a", type_="text"), function("a")]
    with pytest.raises(ApiError) as caught:
        chosen(candidates, "a")
    assert (caught.value.status, caught.value.code) == (300, "PGRST203")
    listed = "api.f(a => integer), api.f(a => text), api.f(a => integer, b => integer)"
    assert caught.value.message.endswith(f"between: {listed}")
    assert chosen(candidates, "a", "b") is candidates[0]


def test_an_empty_name_means_the_nameless_argument_of_a_json_body() -> None:
    text, named = function("", type_="text"), function("a")
    assert chosen([named, text], "", media_type="application/json") is text
    assert chosen([function()], "", media_type="application/json") is None
    assert chosen([function("", type_="integer")], "", media_type="application/json") is None
    assert chosen([text], "", "a", media_type="application/json") is None
    assert chosen([text], "") is None
    with pytest.raises(ApiError):
        chosen([text, function("", type_="json")], "", media_type="application/json")


def test_nameless_arguments_cannot_be_given_unless_one_takes_the_whole_body() -> None:
    assert is_callable(CATALOG, function("a", "b="))
    assert is_callable(CATALOG, function())
    assert is_callable(CATALOG, function("", type_="json"))
    assert not is_callable(CATALOG, function(""))
    assert not is_callable(CATALOG, function("a", ""))
    assert chosen([function("", type_="json")], "", media_type="text/csv") is None


NAMES = st.frozensets(st.sampled_from("abcde"), max_size=5)


@given(NAMES, NAMES, NAMES)
def test_a_function_is_chosen_exactly_when_postgresql_could_call_it(
    required: frozenset[str], optional: frozenset[str], names: frozenset[str]
) -> None:
    optional = optional - required
    one = function(*sorted(required), *(f"{name}=" for name in sorted(optional)))
    could = required <= names <= required | optional
    assert (chosen([one], *names) is one) == could
