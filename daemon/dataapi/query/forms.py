"""SQL of single values as JSON: their wire forms, objects, node ids and cursors."""

from __future__ import annotations

from dataapi.database.quoting import quote_literal
from dataapi.query.results import Key, Labels, Text, WireForm
from dataapi.query.writer import Writer

MEMBERS_PER_CALL = 50
"""A function takes 100 arguments, so ``json_build_object`` makes at most 50 members."""


def key_sql(writer: Writer, key: Key) -> str:
    """Return the SQL of a member's name."""
    return quote_literal(key.text) if isinstance(key, Text) else writer.slot(key)


def build_object(members: list[tuple[str, str]]) -> str:
    """Return ``json_build_object`` over SQL names and values, split where they are too many."""
    chunks = [
        _object_call(members[at : at + MEMBERS_PER_CALL]) for at in range(0, len(members), MEMBERS_PER_CALL)
    ]
    if len(chunks) <= 1:
        return chunks[0] if chunks else "pg_catalog.json_build_object()"
    # Each chunk stands once in the text, else nested objects would double it at every level.
    texts = [f"pg_catalog.substr(pg_catalog.left({chunk}::text, -1), 2)" for chunk in chunks]
    return "('{' || " + " || ', ' || ".join(texts) + " || '}')::json"


def _object_call(members: list[tuple[str, str]]) -> str:
    return "pg_catalog.json_build_object(" + ", ".join(f"{key}, {value}" for key, value in members) + ")"


def form_sql(value: str, form: WireForm, labels: Labels = ()) -> str:
    """Return a value's SQL in the form in which it is written to JSON."""
    match form:
        case WireForm.JSON:
            return value
        case WireForm.TEXT:
            return f"({value})::text"
        case WireForm.TEXT_ARRAY:
            return f"({value})::text[]"
        case WireForm.ENUM:
            return _label_sql(value, labels)
        case WireForm.ENUM_ARRAY:
            shown = _label_sql("label", labels)
            labels_in_order = f"pg_catalog.unnest({value}) with ordinality as u(label, place)"
            listed = f"select pg_catalog.array_agg({shown} order by place) from {labels_in_order}"
            return f"case when ({value}) is not null then coalesce(({listed}), '{{}}') end"


def _label_sql(value: str, labels: Labels) -> str:
    if not labels:
        return f"({value})::text"
    cases = " ".join(f"when {quote_literal(label)} then {quote_literal(shown)}" for label, shown in labels)
    return f"case ({value})::text {cases} else ({value})::text end"


def base64_sql(values: list[str]) -> str:
    """Return the base64 of a JSON array's text, without the line breaks that ``encode`` adds."""
    array = f"pg_catalog.jsonb_build_array({', '.join(values)})"
    encoded = f"pg_catalog.encode(pg_catalog.convert_to({array}::text, 'UTF8'), 'base64')"
    return f"pg_catalog.translate({encoded}, E'\\n', '')"
