"""Event catalogues and event sources of the installed plugins."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from twisted.logger import Logger
from twisted.plugin import getPlugins

from dataapi.webhooks.catalogue import BadEventType, Catalogue
from dataapi.webhooks.interfaces import IEventCatalogue, IEventSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dataapi.webhooks.event_types import EventType

SHIPPED = "dataapi.plugins.platform_events"

_log = Logger()


def installed_catalogue() -> Catalogue:
    """Return all event types of the installed plugins.

    A plugin that fails to load, or whose types are wrong, is logged and left out whole; the others are not
    affected.
    """
    found = getPlugins(IEventCatalogue, import_module("dataapi.plugins"))
    catalogue, problems = combined(found)
    for problem in problems:
        _log.error("an event catalogue is left out: {problem}", problem=problem)
    return catalogue


def installed_sources() -> tuple[IEventSource, ...]:
    """Return the event sources of the installed plugins; one that fails to load is logged and left out."""
    return tuple(sorted(getPlugins(IEventSource, import_module("dataapi.plugins")), key=_origin))


def combined(found: Iterable[IEventCatalogue]) -> tuple[Catalogue, tuple[str, ...]]:
    """Return the types of several catalogues together, and why some of these are left out.

    The shipped catalogue comes first, the others in the order of their names: of two that have the same type
    the later one is left out.
    """
    waiting: list[tuple[str, tuple[EventType, ...]]] = []
    problems: list[str] = []
    for one in sorted(found, key=_origin):
        try:
            waiting.append((_name(one), tuple(one.event_types())))
        except Exception as error:
            problems.append(f"{_name(one)}: {error!r}")
    catalogue = Catalogue()
    # A catalogue may render types of another that comes later, so those left out are tried again.
    while waiting:
        refused: list[tuple[str, tuple[EventType, ...]]] = []
        reasons: list[str] = []
        for name, types in waiting:
            try:
                catalogue = Catalogue((*catalogue.types.values(), *types))
            except BadEventType as error:
                refused.append((name, types))
                reasons.append(f"{name}: {error}")
        if len(refused) == len(waiting):
            problems += reasons
            break
        waiting = refused
    return catalogue, tuple(problems)


def _name(plugin: object) -> str:
    return f"{type(plugin).__module__}.{type(plugin).__qualname__}"


def _origin(plugin: object) -> tuple[bool, str]:
    return type(plugin).__module__ != SHIPPED, _name(plugin)
