"""A request selects an overloaded function by its argument names."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from dataapi.catalog.model import Argument, Catalog, Function, Type, TypeKind, Volatility
from dataapi.http.errors import ApiError
from dataapi.rest.parse.request import CallShape
from dataapi.rest.plan.functions import always_ambiguous, choose, is_callable
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
    parameters = tuple(
        Argument(text.rstrip("="), TYPES[type_], "1" if text.endswith("=") else None) for text in arguments
    )
    oid = hash(arguments) % 1000
    return Function(oid, "api", "f", parameters, 100, False, 0, (), Volatility.STABLE, (), None, ())


def chosen(candidates: Iterable[Function], *names: str, media_type: str | None = None) -> Function | None:
    """Return the function that a call with these argument names selects."""
    choice = choose(CATALOG, list(candidates), CallShape(frozenset(names), media_type))
    return None if choice is None else choice.function


def test_required_arguments_must_be_given_and_unknown_ones_must_not() -> None:
    candidate = function("a", "b", "c=", "d=")
    for names in ("ab", "abc", "abd", "abcd"):
        assert chosen([candidate], *names) is candidate
    for names in ("", "a", "acd", "abe"):
        assert chosen([candidate], *names) is None


def test_optional_arguments_may_be_omitted() -> None:
    candidate = function("a=", "b=")
    for names in ("", "a", "b", "ab"):
        assert chosen([candidate], *names) is candidate
    assert chosen([candidate], "c") is None


def test_function_without_arguments_accepts_none() -> None:
    none = function()
    assert chosen([none]) is none
    assert chosen([none], media_type="application/json") is none
    assert chosen([none], "a") is None
    assert chosen([none], media_type="text/plain") is None


def test_whole_body_is_the_argument_if_no_function_has_the_names() -> None:
    body_function, named = function("", type_="json"), function("a")
    assert chosen([body_function, named], "a", media_type="application/json") is named
    assert chosen([body_function, named], "b", media_type="application/json") is body_function
    assert chosen([body_function], media_type="text/plain") is None
    assert chosen([function("", type_="bytea")], media_type="application/octet-stream") is not None
    assert chosen([body_function]) is None


def test_several_matching_functions_are_ambiguous() -> None:
    """The error must not depend on the order of functions in the catalog."""
    candidates = [function("a", "b="), function("a", type_="text"), function("a")]
    with pytest.raises(ApiError) as caught:
        chosen(candidates, "a")
    assert (caught.value.status, caught.value.code) == (300, "PGRST203")
    parameters = "api.f(a => integer), api.f(a => text), api.f(a => integer, b => integer)"
    assert caught.value.message.endswith(f"between: {parameters}")
    assert chosen(candidates, "a", "b") is candidates[0]


def test_empty_name_is_the_unnamed_argument_of_a_json_body() -> None:
    text, named = function("", type_="text"), function("a")
    assert chosen([named, text], "", media_type="application/json") is text
    assert chosen([function()], "", media_type="application/json") is None
    assert chosen([function("", type_="integer")], "", media_type="application/json") is None
    assert chosen([text], "", "a", media_type="application/json") is None
    assert chosen([text], "") is None
    with pytest.raises(ApiError):
        chosen([text, function("", type_="json")], "", media_type="application/json")


def test_unnamed_arguments_only_work_for_a_whole_body() -> None:
    assert is_callable(CATALOG, function("a", "b="))
    assert is_callable(CATALOG, function())
    assert is_callable(CATALOG, function("", type_="json"))
    assert not is_callable(CATALOG, function(""))
    assert not is_callable(CATALOG, function("a", ""))
    assert chosen([function("", type_="json")], "", media_type="text/csv") is None


NAMES = st.frozensets(st.sampled_from("abcde"), max_size=5)


@given(NAMES, NAMES, NAMES)
def test_function_is_chosen_if_and_only_if_postgresql_could_call_it(
    required: frozenset[str], optional: frozenset[str], names: frozenset[str]
) -> None:
    optional = optional - required
    candidate = function(*sorted(required), *(f"{name}=" for name in sorted(optional)))
    callable_ = required <= names <= required | optional
    assert (chosen([candidate], *names) is candidate) == callable_


OVERLOADS = st.lists(st.tuples(NAMES, NAMES), min_size=2, max_size=4)


@given(OVERLOADS)
def test_every_call_of_an_ambiguous_function_fails(
    shapes: list[tuple[frozenset[str], frozenset[str]]],
) -> None:
    overloads = [
        function(*sorted(required), *(f"{name}=" for name in sorted(optional - required)))
        for required, optional in shapes
    ]
    one, (required, optional) = overloads[0], shapes[0]
    error = always_ambiguous(CATALOG, one, overloads)
    for count in range(len(optional - required) + 1):
        for chosen_names in combinations(sorted(optional - required), count):
            if error is not None:
                with pytest.raises(ApiError) as caught:
                    chosen(overloads, *required, *chosen_names)
                assert caught.value.code == error.code


def test_function_is_ambiguous_if_another_one_accepts_all_its_names() -> None:
    def is_ambiguous(one: Function, other: Function) -> bool:
        return always_ambiguous(CATALOG, one, [one, other]) is not None

    assert is_ambiguous(function("a"), function("a", type_="text"))
    assert is_ambiguous(function(), function("a="))
    assert not is_ambiguous(function("a="), function()), "calls with the argument are unambiguous"
    assert not is_ambiguous(function("a"), function("a", "b"))
    whole = function("", type_="json")
    assert not is_ambiguous(whole, function("", type_="text")), "the bodies have different media types"
    assert is_ambiguous(whole, function("", type_="json"))
    assert always_ambiguous(CATALOG, whole, [whole]) is None
