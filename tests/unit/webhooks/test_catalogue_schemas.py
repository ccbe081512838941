"""Compiled schemas accept the same values as ``jsonschema``."""

from __future__ import annotations

from typing import Any

import pytest
from dataapi.webhooks.catalogue import CompiledSchema
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

SCALARS: Any = st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, 2.5, "", "a", "ab", "abc", "\u00e9\n"])
DOCUMENTS: Any = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
TYPES: Any = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])


def schemas(inner: Any) -> Any:
    """Return a strategy for JSON schemas that contain schemas from the strategy ``inner``."""
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "const": SCALARS,
            "enum": st.lists(SCALARS, min_size=1, max_size=3),
            "pattern": st.sampled_from(["^a", "b$", "^$", "."]),
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 3),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "minItems": st.integers(0, 2),
            "description": st.just("ignored"),
        },
    )


SCHEMAS: Any = st.recursive(st.just({}), schemas, max_leaves=6)


@given(schema=SCHEMAS, document=DOCUMENTS)
def test_compiled_schema_reports_the_errors_of_jsonschema(schema: Any, document: Any) -> None:
    expected = [error.message for error in Draft202012Validator(schema).iter_errors(document)]
    assert [error.message for error in CompiledSchema(schema).errors(document)] == expected


@pytest.mark.parametrize("pattern", ["(", "[a-"])
def test_pattern_that_python_rejects_does_not_prevent_compilation(pattern: str) -> None:
    assert list(CompiledSchema({"pattern": pattern}).errors(1)) == []
