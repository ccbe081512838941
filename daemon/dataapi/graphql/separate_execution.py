"""Execution of mutations that need several messages in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dataapi.auth.caller import Caller
from dataapi.auth.transaction import MultiMessageTransaction, MultiMessageTransactions, with_retries
from dataapi.catalog.model import Catalog
from dataapi.graphql.separate_statements import FieldStatements, bind_after
from dataapi.graphql.sources import client_key
from dataapi.http.messages import Request


async def run_separately(
    transactions: MultiMessageTransactions,
    catalog: Catalog,
    http: Request,
    caller: Caller,
    fields: Sequence[FieldStatements],
    variables: Mapping[str, Any],
) -> str:
    """Run the statements of each field and return the data as JSON text.

    Either all statements take effect or none. The transaction is retried after a serialization failure or
    deadlock, like other mutations.

    :raises ApiError: the database rejects a statement.
    """

    async def attempt() -> str:
        async with transactions.begin(catalog, http, caller, read_only=False) as transaction:
            return await _data(transaction, http, fields, variables)

    return await with_retries(attempt)


async def _data(
    transaction: MultiMessageTransaction,
    http: Request,
    fields: Sequence[FieldStatements],
    variables: Mapping[str, Any],
) -> str:
    members, begun = list[str](), False
    for field in fields:
        row: tuple[Any, ...] = (field.constant,)
        for message in field.messages:
            bound = bind_after(message, variables, row)
            [row] = await transaction.run(http, bound, read_only=False, continued=begun)
            begun = True
        members.append(f'"{client_key(field.key, variables)}":{row[0]}')
    return f"{{{','.join(members)}}}"
