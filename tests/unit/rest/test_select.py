"""Parsing of ``select``, ``order``, ``columns`` and parameter names."""

from __future__ import annotations

import pytest
from dataapi.http.errors import ApiError
from dataapi.rest.parse.select import (
    AGGREGATES,
    MAX_EMBED_DEPTH,
    Embed,
    Field,
    FieldName,
    Item,
    PathStep,
    Star,
    Term,
    parse_names,
    parse_order,
    parse_select,
    parse_target,
)
from hypothesis import given
from hypothesis import strategies as st

BARE = st.from_regex(r"[A-Za-z_é][A-Za-z0-9_$é]{0,8}", fullmatch=True)
ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
NAMES = st.one_of(BARE, ANY)
STEPS = st.one_of(
    st.builds(PathStep, NAMES, st.booleans()),
    st.builds(PathStep, st.integers(-9, 9).map(str), st.booleans(), st.just(value=True)),
)
PATHS = st.lists(STEPS, max_size=3).map(tuple)
CASTS = st.none() | BARE
PLAIN = st.builds(Field, NAMES, st.none() | NAMES, PATHS, CASTS, st.none(), st.none())
AGGREGATED = st.sampled_from(AGGREGATES)
FIELDS = PLAIN | st.builds(Field, NAMES, st.none() | NAMES, PATHS, CASTS, AGGREGATED, CASTS)
HINTS = st.none() | BARE.filter(lambda hint: hint not in ("inner", "left"))


def embeds(inner: st.SearchStrategy[tuple[Item, ...]]) -> st.SearchStrategy[Embed]:
    plain = st.builds(Embed, NAMES, inner, st.none() | NAMES, HINTS, st.booleans())
    return plain | st.builds(Embed, NAMES, inner, st.none(), HINTS, st.booleans(), st.just(value=True))


ITEMS: st.SearchStrategy[tuple[Item, ...]] = st.recursive(
    st.lists(st.just(Star()) | FIELDS, max_size=4).map(tuple),
    lambda inner: st.lists(embeds(inner) | FIELDS, max_size=3).map(tuple),
    max_leaves=6,
)
TERMS = st.builds(Term, NAMES, PATHS, st.none() | NAMES, st.none() | st.booleans(), st.none() | st.booleans())
TARGETS = st.builds(FieldName, st.lists(NAMES, max_size=3).map(tuple), NAMES, PATHS)


def quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def written(items: tuple[Item, ...]) -> str:
    """Return items in query string syntax."""
    return ",".join(map(_item, items))


def _item(item: Item) -> str:
    match item:
        case Star():
            return "*"
        case Embed():
            alias = f"{quoted(item.alias)}:" if item.alias is not None else ""
            hints = f"!{item.hint}" if item.hint is not None else ""
            hints += "!inner" * item.inner
            return f"{'...' * item.spread}{alias}{quoted(item.name)}{hints}({written(item.items)})"
        case Field():
            alias = f"{quoted(item.alias)}:" if item.alias is not None else ""
            cast = f"::{item.cast}" if item.cast else ""
            aggregate = f".{item.aggregate}()" if item.aggregate else ""
            if item.aggregate and item.aggregate_cast:
                aggregate += f"::{item.aggregate_cast}"
            return f"{alias}{quoted(item.name)}{_path(item.path)}{cast}{aggregate}"


def _path(path: tuple[PathStep, ...]) -> str:
    return "".join(
        ("->>" if step.as_text else "->") + (step.operand if step.is_index else quoted(step.operand))
        for step in path
    )


@given(ITEMS)
def test_select_is_parsed_as_written(items: tuple[Item, ...]) -> None:
    assert parse_select(written(items)) == items


@given(st.lists(TERMS, min_size=1, max_size=4))
def test_order_is_parsed_as_written(terms: list[Term]) -> None:
    texts = []
    for term in terms:
        text = quoted(term.name) + _path(term.path)
        text = f"{quoted(term.relation)}({text})" if term.relation is not None else text
        text += {None: "", True: ".desc", False: ".asc"}[term.descending]
        texts.append(text + {None: "", True: ".nullsfirst", False: ".nullslast"}[term.nulls_first])
    assert parse_order(",".join(texts)) == tuple(terms)


@given(TARGETS)
def test_parameter_names_are_parsed_as_written(target: FieldName) -> None:
    names = [*target.embeds, target.name]
    assert parse_target(".".join(map(quoted, names)) + _path(target.path)) == target


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_lists_of_columns_are_parsed_as_written(names: list[str]) -> None:
    assert parse_names(" , ".join(map(quoted, names)), "columns") == tuple(names)


@given(st.text(st.sampled_from('ab*,.:()"\\->!é 0_$'), max_size=20))
def test_any_text_is_parsed_or_rejected_with_pgrst100(text: str) -> None:
    for parse in (parse_select, parse_order, parse_target):
        try:
            parse(text)
        except ApiError as error:
            assert (error.status, error.code) == (400, "PGRST100")  # noqa: PT017 - most texts are rejected


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", ()),
        ("*", (Star(),)),
        ("a, b ,c", (Field("a"), Field("b"), Field("c"))),
        ("odd name", (Field("odd name"),)),
        ("with-dash", (Field("with-dash"),)),
        ("data->a->>0", (Field("data", path=(PathStep("a", False), PathStep("0", True, True))),)),
        ("arr->-1", (Field("arr", path=(PathStep("-1", False, True),)),)),
        ("n:a::text", (Field("a", "n", cast="text"),)),
        ("count()", (Field("", aggregate="count"),)),
        ("n:count()::text", (Field("", "n", aggregate="count", aggregate_cast="text"),)),
        ("count", (Field("count"),)),
        ("a.sum()", (Field("a", aggregate="sum"),)),
        ("who:b!fk!inner(*)", (Embed("b", (Star(),), "who", "fk", True),)),
        ("...b(c)", (Embed("b", (Field("c"),), spread=True),)),
        ("b()", (Embed("b", ()),)),
        ("b!left!fk(c)", (Embed("b", (Field("c"),), hint="fk"),)),
        ("a::timestamp with time zone", (Field("a", cast="timestamp with time zone"),)),
        ("a->b::int.sum()::text", (Field("a", None, (PathStep("b", False),), "int", "sum", "text"),)),
        ('a->"0"', (Field("a", path=(PathStep("0", False),)),)),
        ("a->b-c", (Field("a", path=(PathStep("b-c", False),)),)),
    ],
)
def test_select_items_are_parsed(text: str, items: tuple[Item, ...]) -> None:
    assert parse_select(text) == items


@pytest.mark.parametrize("text", ["a(b)'", "a(b))", "a(b) c(d)", "a(b)!inner,c"])
def test_text_after_an_outermost_resource_is_ignored(text: str) -> None:
    """PostgREST also ignores this text, and text after an unmatched closing parenthesis."""
    assert parse_select(text) == (Embed("a", (Field("b"),)),)
    assert parse_select("x)" + text) == (Field("x"),)


NAME = "field name (* or [a..z0..9_$])"
STEP = '"-", digit or any non reserved character different from: .,>()'
AFTER_NAME = 'letter, digit, "-", "->>", "->", "::", "."'


@pytest.mark.parametrize(
    ("text", "column", "details"),
    [
        ("a,", 3, f'unexpected end of input expecting "..." or {NAME}'),
        (":", 1, f'unexpected ":" expecting "..." or {NAME}'),
        ("id,clients(name[])", 16, f'unexpected \'[\' expecting {AFTER_NAME}, ")", "," or end of input'),
        ("name!hint", 5, f'unexpected \'!\' expecting {AFTER_NAME}, ")", "," or end of input'),
        ("*!hint", 2, 'unexpected \'!\' expecting ")", "," or end of input'),
        ("name::", 7, "unexpected end of input expecting letter or digit"),
        ("data->>-78xy", 11, 'unexpected \'x\' expecting digit, "->", "::", ".", "," or end of input'),
        ("data->>--34", 9, 'unexpected "-" expecting digit'),
        ("data->", 7, f"unexpected end of input expecting {STEP}"),
        ("data->(", 7, f'unexpected "(" expecting {STEP}'),
        ("a(b", 4, f'unexpected end of input expecting {AFTER_NAME}, ")" or ","'),
        ("amount.foo()", 8, 'unexpected "f" expecting "sum", "avg", "count", "max" or "min"'),
        ("...a", 5, 'unexpected end of input expecting letter, digit, "-" or "("'),
        ("a(b(c)d)", 7, 'unexpected "d" expecting "," or ")"'),
        ("a;b", 2, f'unexpected \';\' expecting {AFTER_NAME}, ")", "," or end of input'),
    ],
)
def test_syntax_errors_in_select_are_reported_with_their_column(text: str, column: int, details: str) -> None:
    """The messages are those of PostgREST."""
    with pytest.raises(ApiError) as caught:
        parse_select(text)
    assert caught.value.message == f'"failed to parse select parameter ({text})" (line 1, column {column})'
    assert caught.value.details == details


@pytest.mark.parametrize(
    ("text", "column", "details"),
    [
        ("id.ac", 4, 'unexpected "c" expecting "asc", "desc", "nullsfirst" or "nullslast"'),
        ("id.nulsfist", 4, 'unexpected "n" expecting "asc", "desc", "nullsfirst" or "nullslast"'),
        ("id.descc", 8, "unexpected 'c' expecting delimiter (.), \",\" or end of input"),
        ("id.nullslasttt", 13, "unexpected 't' expecting \",\" or end of input"),
        ("id.asc.smth34", 8, 'unexpected "s" expecting "nullsfirst" or "nullslast"'),
        (
            "clients(name,id)",
            8,
            'unexpected \'(\' expecting letter, digit, "-", "->>", "->", delimiter (.), "," or end of input',
        ),
        ("", 1, f"unexpected end of input expecting {NAME}"),
    ],
)
def test_syntax_errors_in_order_are_reported_with_their_column(text: str, column: int, details: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_order(text)
    assert caught.value.message == f'"failed to parse order ({text})" (line 1, column {column})'
    assert caught.value.details == details


def test_syntax_errors_in_other_parameters_name_the_parameter() -> None:
    with pytest.raises(ApiError) as caught:
        parse_names("a,,b", "columns")
    assert caught.value.message == '"failed to parse columns parameter (a,,b)" (line 1, column 3)'
    with pytest.raises(ApiError) as caught:
        parse_target("a.;")
    assert caught.value.message == '"failed to parse tree path (a.;)" (line 1, column 3)'
    assert caught.value.details == f'unexpected ";" expecting {NAME}'


def test_line_of_a_syntax_error_is_reported() -> None:
    with pytest.raises(ApiError) as caught:
        parse_select("a,\n;")
    assert caught.value.message.endswith("(line 1, column 3)")
    with pytest.raises(ApiError) as caught:
        parse_select('"a\nb",;')
    assert caught.value.message.endswith("(line 2, column 4)")


def test_deeply_nested_embedding_is_rejected() -> None:
    """Even a URL of valid length could exceed Python's recursion limit."""
    assert parse_select("a(" * MAX_EMBED_DEPTH + "b" + ")" * MAX_EMBED_DEPTH)
    with pytest.raises(ApiError, match="failed to parse select") as caught:
        parse_select("a(" * 15_000)
    assert caught.value.details is not None
    assert f"at most {MAX_EMBED_DEPTH} levels of resources" in caught.value.details
