"""How ``select`` and ``order`` are read."""

from __future__ import annotations

import pytest
from dataapi.errors import ApiError
from dataapi.rest.grammar import DEEPEST, parse_order, parse_select
from dataapi.rest.syntax import Embed, Field, Item, Star, Step, Term
from hypothesis import given
from hypothesis import strategies as st

BARE = st.from_regex(r"[A-Za-z_é][A-Za-z0-9_$é]{0,8}", fullmatch=True)
ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
NAMES = st.one_of(BARE, ANY)
STEPS = st.builds(Step, st.one_of(BARE, st.integers(-9, 9).map(str)), st.booleans())
PATHS = st.lists(STEPS, max_size=3).map(tuple)
CASTS = st.none() | BARE
PLAIN = st.builds(Field, NAMES, st.none() | NAMES, PATHS, CASTS, st.none(), st.none())
AGGREGATES = st.builds(Field, NAMES, st.none() | NAMES, PATHS, CASTS, st.sampled_from(["sum", "avg"]), CASTS)
FIELDS = PLAIN | AGGREGATES
ITEMS: st.SearchStrategy[tuple[Item, ...]] = st.recursive(
    st.lists(st.just(Star()) | FIELDS, max_size=4).map(tuple),
    lambda inner: st.lists(
        st.builds(Embed, NAMES, inner, st.none() | NAMES, st.lists(BARE, max_size=2).map(tuple)) | FIELDS,
        max_size=3,
    ).map(tuple),
    max_leaves=6,
)
TERMS = st.builds(Term, NAMES, PATHS, st.none() | NAMES, st.none() | st.booleans(), st.none() | st.booleans())


def quoted(name: str) -> str:
    """Write any name."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def written(items: tuple[Item, ...]) -> str:
    """Write items as a client would."""
    return ",".join(map(_item, items))


def _item(item: Item) -> str:
    match item:
        case Star():
            return "*"
        case Embed():
            alias = f"{quoted(item.alias)}:" if item.alias is not None else ""
            hints = "".join(f"!{hint}" for hint in item.hints)
            return f"{'...' * item.spread}{alias}{quoted(item.name)}{hints}({written(item.items)})"
        case Field():
            alias = f"{quoted(item.alias)}:" if item.alias is not None else ""
            cast = f"::{item.cast}" if item.cast else ""
            aggregate = f".{item.aggregate}()" if item.aggregate else ""
            if item.aggregate and item.aggregate_cast:
                aggregate += f"::{item.aggregate_cast}"
            return f"{alias}{quoted(item.name)}{_path(item.path)}{cast}{aggregate}"


def _path(path: tuple[Step, ...]) -> str:
    return "".join(f"{'->>' if step.as_text else '->'}{step.operand}" for step in path)


@given(ITEMS)
def test_select_is_read_as_it_was_written(items: tuple[Item, ...]) -> None:
    """Whatever can be said is understood as it was meant, names of any characters included."""
    assert parse_select(written(items)) == items


@given(st.lists(TERMS, min_size=1, max_size=4))
def test_order_is_read_as_it_was_written(terms: list[Term]) -> None:
    """Directions, the place of nulls, paths and related columns come back."""
    texts = []
    for term in terms:
        text = quoted(term.name) + _path(term.path)
        text = f"{quoted(term.relation)}({text})" if term.relation is not None else text
        text += {None: "", True: ".desc", False: ".asc"}[term.descending]
        texts.append(text + {None: "", True: ".nullsfirst", False: ".nullslast"}[term.nulls_first])
    assert parse_order(",".join(texts)) == tuple(terms)


@given(st.text(st.sampled_from('ab*,.:()"\\->!é 0_$'), max_size=20))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    """Nothing but a refusal with PGRST100 can come of a text that makes no sense."""
    for parse in (parse_select, parse_order):
        try:
            parse(text)
        except ApiError as error:
            assert (error.status, error.code) == (400, "PGRST100")  # noqa: PT017 - most texts are refused


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", ()),
        ("*", (Star(),)),
        ("a, b ,c", (Field("a"), Field("b"), Field("c"))),
        ("odd name", (Field("odd name"),)),
        ("with-dash", (Field("with-dash"),)),
        ("data->a->>0", (Field("data", path=(Step("a", False), Step("0", True))),)),
        ("arr->-1", (Field("arr", path=(Step("-1", False),)),)),
        ("n:a::text", (Field("a", "n", cast="text"),)),
        ("count()", (Field("", aggregate="count"),)),
        ("n:count()::text", (Field("", "n", aggregate="count", aggregate_cast="text"),)),
        ("count", (Field("count"),)),
        ("a.sum()", (Field("a", aggregate="sum"),)),
        ("who:b!fk!inner(*)", (Embed("b", (Star(),), "who", ("fk", "inner")),)),
        ("...b(c)", (Embed("b", (Field("c"),), spread=True),)),
        ("b()", (Embed("b", ()),)),
    ],
)
def test_forms_of_select(text: str, items: tuple[Item, ...]) -> None:
    """The forms of the dialect, as clients write them."""
    assert parse_select(text) == items


@pytest.mark.parametrize(
    ("text", "column", "details"),
    [
        ("a,", 3, "unexpected the end, expecting a name"),
        (",a", 1, 'unexpected ",", expecting a name'),
        ("a)", 2, 'unexpected ")", expecting a comma or the end'),
        ("a(b", 4, 'unexpected the end, expecting a comma or ")"'),
        ("a!b", 4, 'unexpected the end, expecting "("'),
        ("...a", 5, 'unexpected the end, expecting "("'),
        ('"a', 3, "unexpected the end, expecting a closing double quote"),
        ("a.b", 4, 'unexpected the end, expecting "()" behind the name of an aggregate'),
        ("a;b", 2, 'unexpected ";", expecting a comma or the end'),
    ],
)
def test_mistakes_are_told_with_their_column(text: str, column: int, details: str) -> None:
    """The message has the value and the column, the details what was expected there."""
    with pytest.raises(ApiError) as caught:
        parse_select(text)
    assert caught.value.message == f'"failed to parse select parameter ({text})" (line 1, column {column})'
    assert caught.value.details is not None
    assert caught.value.details.startswith(details)


@pytest.mark.parametrize(
    "text", ["a.up", "a.asc.desc", "a.nullslast.desc", "a.desc.nullsfirst.x", "", "a,", "b(a"]
)
def test_what_is_no_order_is_refused(text: str) -> None:
    """Unknown words and words in the wrong place are not ignored."""
    with pytest.raises(ApiError) as caught:
        parse_order(text, "kids.order")
    assert caught.value.message.startswith(
        f'"failed to parse kids.order parameter ({text})" (line 1, column '
    )


def test_embedding_too_deep_is_refused() -> None:
    """A value may be as long as a URL, but not nest without end."""
    assert parse_select("a(" * DEEPEST + "b" + ")" * DEEPEST)
    with pytest.raises(ApiError, match="failed to parse select") as caught:
        parse_select("a(" * 15_000)
    assert caught.value.details is not None
    assert f"at most {DEEPEST} resources deep" in caught.value.details
