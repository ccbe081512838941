"""Errors contain names of tables and constraints instead of those of Citus's shards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dataapi.http.errors import DatabaseError
from dataapi.sql.dialects.shard_names import naming_tables
from support.catalog import MadeUp

_BUILDER = MadeUp()
_BUILDER.table("company", "id")
_BUILDER.table("task", "id", "company_id")
_BUILDER.foreign_key("task_company_id_fkey", "task", ["company_id"], "company")
_PLAIN = _BUILDER.catalog()
_DISTRIBUTED = {oid: replace(table, distributed_by="id") for oid, table in _PLAIN.tables.items()}
CLUSTER = replace(_PLAIN, tables=_DISTRIBUTED, clustered=True)
REFERENCED = (
    'update or delete on table "company_102025" violates foreign key constraint '
    '"task_company_id_fkey_102057" on table "task_102057"'
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (REFERENCED, REFERENCED.replace("_102025", "").replace("_102057", "")),
        ('duplicate key … "task_key_0_102121"', 'duplicate key … "task_key_0"'),
        # A constraint that is not in the catalog is recognized by its table's shard number.
        (
            'new row for relation "task_102121" violates check constraint "positive_102121"',
            'new row for relation "task" violates check constraint "positive"',
        ),
        ('relation "other_102121" has "others_2024"', 'relation "other_102121" has "others_2024"'),
    ],
)
def test_error_of_a_shard_names_the_table(message: str, expected: str) -> None:
    error = DatabaseError(409, "23503", message, details=f"({message})", hint=None)
    error = naming_tables(error, CLUSTER)
    assert (error.message, error.details, error.hint) == (expected, f"({expected})", None)


def test_names_like_shards_are_unchanged_without_citus() -> None:
    error = DatabaseError(409, "23503", REFERENCED)
    assert naming_tables(error, _PLAIN).message == REFERENCED
