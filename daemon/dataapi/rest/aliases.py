"""Tells of parameters that call an embedded resource by its relation's name although it has an alias; pure.

PostgREST 14 takes both names; later versions warn of the relation's and will refuse it one day
(reference/rest.md 1.5, "other headers").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from dataapi.query.answers import Answered
from dataapi.rest.context import Planned, Streamed
from dataapi.rest.request.grammar import parse_select, parse_target, parse_way
from dataapi.rest.request.syntax import Embed, Item
from dataapi.rest.resolve.selection import Selection
from dataapi.web.messages import Reply

AnyPlan = TypeVar("AnyPlan", bound=Planned | Streamed)


def warned(planned: AnyPlan, selection: Selection) -> AnyPlan:
    """Return the plan of a selection, whose reply warns of relations' names in place of aliases."""
    names = _names(selection) if _may_have_aliases(selection) else ()
    if not names:
        return planned
    header = ("Warning", _warning(names))
    if isinstance(planned, Streamed):
        return replace(planned, head=_with(planned.head, header))
    finish = planned.finish

    def finish_warned(row: Answered) -> Reply:
        return _with(finish(row), header)

    return replace(planned, finish=finish_warned)


def _with(reply: Reply, header: tuple[str, str]) -> Reply:
    return replace(reply, headers=(*reply.headers, header))


def _may_have_aliases(selection: Selection) -> bool:
    """Return whether it is worth looking: most requests have nothing that is embedded by another name."""
    select = selection.select
    return select is not None and ":" in select and "(" in select


def _warning(names: Iterable[tuple[str, str]]) -> str:
    """Return the header's value, in which nothing of a request can end the quotes."""
    changes = ", ".join(f"`{name}` to `{alias}`" for name, alias in names)
    shown = changes.encode("ascii", "backslashreplace").decode().replace("\\", "\\\\").replace('"', '\\"')
    return (
        "299 dataapi \"An embedded resource that has an alias was called by its relation's name, which is "
        f'deprecated. Change {shown} in filters, orders and limits."'
    )


@lru_cache(maxsize=256)
def _names(selection: Selection) -> tuple[tuple[str, str], ...]:
    """Return the names that stand for an alias, each with the alias, in the order of the parameters."""
    items = parse_select(selection.select or "")
    found = [pair for way in _ways(selection) for pair in _followed(items, way)]
    return tuple(dict.fromkeys(found))


def _ways(selection: Selection) -> Iterator[tuple[str, ...]]:
    """Yield the ways to embedded resources that parameters go."""
    for name, _ in selection.filters:
        yield parse_target(name).way
    for way, _ in selection.logic:
        yield way
    for name in (*selection.limited, *selection.moved):
        yield parse_way(name) if name else ()
    for name, _ in selection.orders:
        yield parse_way(name)[:-1]


def _followed(items: tuple[Item, ...], way: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in way:
        embeds = [item for item in items if isinstance(item, Embed)]
        embed = next((each for each in embeds if name in (each.name, each.alias)), None)
        if embed is None:
            return
        if embed.alias is not None and name != embed.alias:
            yield name, embed.alias
        items = embed.items
