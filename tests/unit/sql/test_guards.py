"""Only errors that guards raise are recognized as errors of guards."""

from __future__ import annotations

import pytest
from dataapi.database.sql_text import ERROR_MARKER
from dataapi.sql.dialect import POSTGRESQL
from dataapi.sql.statement import Guard, Violation, raise_sql, violation_in
from support.slots import parameter

RAISED = f'invalid input syntax for type integer: "{ERROR_MARKER}too many~2~17"'


def test_guard_compares_the_count_with_its_limit_or_one() -> None:
    writer = POSTGRESQL.writer()
    assert Guard("one").violated_sql(writer, "n") == "n operator(pg_catalog.<>) 1"
    assert (
        Guard("few", parameter("most", "bigint")).violated_sql(writer, "n") == "n operator(pg_catalog.>) $1"
    )
    assert [*map(str, writer.sources)] == ["most"]


def test_raised_error_contains_reason_step_and_count() -> None:
    raised = raise_sql("too many", "count", 2)
    assert raised == f"('{ERROR_MARKER}too many~2~' operator(pg_catalog.||) count)::int"
    assert violation_in("22P02", RAISED) == Violation("too many", 2, 17)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("22P01", RAISED),
        ("22P02", RAISED[:-1] + "9" * 5000),
        ("22P02", f'invalid input syntax for type integer: "{ERROR_MARKER}too many~17"'),
        ("22P02", 'invalid input syntax for type integer: "~dataapi~too many~2~17"'),
        ("22P02", 'invalid input syntax for type integer: "~dataapi~too many~dataapi~2~dataapi~17"'),
    ],
    ids=["other code", "many digits", "two parts", "no process", "constant marker"],
)
def test_other_errors_are_not_violations(code: str, message: str) -> None:
    assert violation_in(code, message) is None
