"""Every key of every section, with the reader of its value.

A key's name is that of the dataclass field with ``-`` for ``_``; a test keeps the two alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dataapi.settings import parsers

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section.

    :ivar parse: reads the value or raises ``Rejected``.
    :ivar secret: whether the value is never shown.
    :ivar empty_means_empty: whether an empty value is a value (a list without members, no role);
        otherwise it means the default.
    """

    parse: Callable[[str], Any]
    secret: bool = False
    empty_means_empty: bool = False


def _list(parse: Callable[[str], Any], *, secret: bool = False) -> Key:
    return Key(parse, secret, empty_means_empty=True)


_POSITIVE = Key(parsers.whole(1))
_SECONDS = Key(parsers.seconds)
_TIME_LIMIT = Key(parsers.time_limit, empty_means_empty=True)
_SWITCH = Key(parsers.boolean)
_TEXT = Key(parsers.text)

SERVICE = {
    "listen": _list(parsers.some_endpoints),
    "admin-listen": _list(parsers.endpoints),
    "workers": Key(parsers.workers),
    "max-connections": _POSITIVE,
    "max-bodies": _POSITIVE,
    "log-format": Key(parsers.one_of("json", "text")),
    "log-level": Key(parsers.one_of("crit", "error", "warn", "info", "debug")),
}

PROJECT = {
    "ref": Key(parsers.ref),
    "organization": Key(parsers.slug),
    "hosts": _list(parsers.hosts),
    "db-uri": Key(parsers.database_uri, secret=True),
    "db-schemas": _list(parsers.schemas),
    "db-extra-search-path": _list(parsers.listed),
    "db-anon-role": Key(parsers.text, empty_means_empty=True),
    "db-pool": _POSITIVE,
    "db-pool-acquisition-timeout": _SECONDS,
    "db-pool-max-idletime": _TIME_LIMIT,
    "db-pool-max-lifetime": _TIME_LIMIT,
    "db-max-rows": _POSITIVE,
    "db-pre-request": _TEXT,
    "db-root-spec": _TEXT,
    "db-prepared-statements": Key(parsers.automatic),
    "db-channel-enabled": Key(parsers.automatic),
    "db-statement-timeout": _TIME_LIMIT,
    "request-timeout": _SECONDS,
    "db-tx-end": Key(parsers.transaction_end),
    "db-hoisted-tx-settings": _list(parsers.setting_names),
    "db-plan-enabled": _SWITCH,
    "db-aggregates-enabled": _SWITCH,
    "jwt-secret": Key(parsers.jwt_secret, secret=True),
    "jwt-secret-is-base64": _SWITCH,
    "jwt-aud": _TEXT,
    "jwt-role-claim-key": Key(parsers.claim_path),
    "jwt-cache-max-entries": Key(parsers.whole(0)),
    "require-api-key": _SWITCH,
    "publishable-keys": _list(parsers.api_keys, secret=True),
    "secret-keys": _list(parsers.api_keys, secret=True),
    "openapi-mode": Key(parsers.one_of("follow-privileges", "ignore-privileges", "disabled")),
    "openapi-server-proxy-uri": Key(parsers.web_address),
    "graphql-max-depth": _POSITIVE,
    "graphql-max-aliases": _POSITIVE,
    "graphql-max-tokens": _POSITIVE,
    "graphql-max-cost": _POSITIVE,
    "graphql-documents": Key(parsers.folder),
    "graphql-documents-only": _SWITCH,
    "graphql-validation": Key(parsers.one_of("compatible", "strict")),
    "graphql-non-null-relationships": _SWITCH,
    "graphql-features": _list(parsers.features),
    "client-error-verbosity": Key(parsers.one_of("verbose", "minimal")),
    "server-timing-enabled": _SWITCH,
    "server-trace-header": Key(parsers.header_name),
    "server-cors-allowed-origins": _list(parsers.origins),
    "max-body": _POSITIVE,
    "max-answer": _POSITIVE,
}

WEBHOOKS = {
    "db-uri": Key(parsers.database_uri, secret=True),
    "encryption-key": _list(parsers.encryption_keys, secret=True),
    "retry-waits": _list(parsers.waits),
    "timeout": _SECONDS,
    "retention-days": _POSITIVE,
    "concurrency": _POSITIVE,
    "concurrency-per-host": _POSITIVE,
    "allow-addresses": _list(parsers.networks),
    "require-https": _SWITCH,
}


def keys_of(section: str) -> dict[str, Key] | None:
    """Return the keys of a section by its name, None when there is no such section."""
    if section == "project" or section.startswith("project:"):
        return PROJECT
    return {"dataapi": SERVICE, "webhooks": WEBHOOKS}.get(section)
