"""What form a request's answer takes, as the database and the caller's role have it; pure."""

from __future__ import annotations

from dataapi.catalog.model import Table
from dataapi.rest.context import Context
from dataapi.rest.media import Media, Offers, negotiate


def negotiated(
    context: Context,
    table: Table | None,
    *,
    whole: bool = True,
    raw: tuple[str, ...] = (),
    lines: bool = False,
) -> Media:
    """Return the form that the request's client likes best of those that there are.

    :param table: what the rows of the answer are of, None when they are of no table.
    :param whole: whether the answer shows the rows as they are, because nothing was selected of them:
        aggregates of the database for a table take nothing else.
    :param raw: media types that the one value of a function is as it stands.
    :param lines: whether the rows can be sent while they come.
    :raises ApiError: PGRST107 (406), none of the accepted forms is available.
    """
    oid = table.oid if table is not None and whole else 0
    offers = Offers(context.role.functions.producers, oid, raw, lines, context.project.db_plan_enabled)
    return negotiate(context.request.headers.get("accept"), offers)


def as_bytes(media: Media, body: bytes | str | None) -> bytes:
    """Return the bytes of a body as the statement gave it."""
    content = body.encode() if isinstance(body, str) else body or b""
    return unhex(content) if media.binary else content


def unhex(text: bytes) -> bytes:
    """Return the bytes of a ``bytea`` in the text form that it has with ``bytea_output = hex``."""
    return bytes.fromhex(text[2:].decode("ascii")) if text.startswith(rb"\x") else text
