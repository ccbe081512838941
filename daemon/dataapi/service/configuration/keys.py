"""Every key of every section, with the reader of its value.

A key's name is that of the dataclass field with ``-`` for ``_``; a test compares the two.  The names of
``app.settings.*`` are the operator's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dataapi.auth.keys import can_sign
from dataapi.database.address import connection_parameters
from dataapi.service.configuration import endpoints, parsers


@dataclass(frozen=True, slots=True)
class ConfigurationKey:
    """How a key of a section is read.

    :ivar parse: reads the value or raises ``InvalidValue``.
    :ivar secret: whether the value is never shown.
    :ivar empty_means_empty: whether an empty value is a value (a list without members, no role);
        otherwise it means the default.
    """

    parse: Callable[[str], Any]
    secret: bool = False
    empty_means_empty: bool = False


def _list(parse: Callable[[str], Any], *, secret: bool = False) -> ConfigurationKey:
    return ConfigurationKey(parse, secret, empty_means_empty=True)


_POSITIVE = ConfigurationKey(parsers.whole(1))
_SECONDS = ConfigurationKey(parsers.seconds)
_TIME_LIMIT = ConfigurationKey(parsers.time_limit, empty_means_empty=True)
_SWITCH = ConfigurationKey(parsers.boolean)
_TEXT = ConfigurationKey(str)

APP_SETTINGS = "app.settings."
"""What the names of settings begin with that are for SQL to read."""

SERVICE = {
    "listen": _list(endpoints.parse_some_endpoints),
    "admin-listen": _list(endpoints.parse_endpoints),
    "server-reuseport": _SWITCH,
    "workers": ConfigurationKey(parsers.workers),
    "shutdown-delay": ConfigurationKey(parsers.whole(0)),
    "ready-requires": ConfigurationKey(parsers.one_of("any", "all")),
    "max-connections": _POSITIVE,
    "max-connections-per-address": _POSITIVE,
    "trusted-proxies": _list(parsers.networks),
    "header-timeout": _SECONDS,
    "keep-alive-timeout": _SECONDS,
    "max-bodies": _POSITIVE,
    "max-subscriptions": ConfigurationKey(parsers.whole(0)),
    "log-format": ConfigurationKey(parsers.one_of("json", "text")),
    "log-level": ConfigurationKey(parsers.one_of("crit", "error", "warn", "info", "debug")),
    "log-subject": _SWITCH,
}

PROJECT = {
    "ref": ConfigurationKey(parsers.ref),
    "organization": ConfigurationKey(parsers.slug),
    "hosts": _list(parsers.hosts),
    "db-uri": ConfigurationKey(parsers.database_uri, secret=True),
    "db-read-uri": ConfigurationKey(parsers.replicas_uri, secret=True),
    "db-read-max-lag": _TIME_LIMIT,
    "db-schemas": _list(parsers.schemas),
    "db-extra-search-path": _list(parsers.listed),
    "db-anon-role": ConfigurationKey(str, empty_means_empty=True),
    "db-pool": _POSITIVE,
    "db-pool-acquisition-timeout": _SECONDS,
    "db-pool-max-idletime": _TIME_LIMIT,
    "db-pool-max-lifetime": _TIME_LIMIT,
    "db-max-rows": _POSITIVE,
    "db-config": _SWITCH,
    "db-pre-config": _TEXT,
    "db-pre-request": _TEXT,
    "db-root-spec": _TEXT,
    "db-prepared-statements": ConfigurationKey(parsers.automatic),
    "db-channel": ConfigurationKey(parsers.channel),
    "db-channel-enabled": ConfigurationKey(parsers.automatic),
    "db-statement-timeout": _TIME_LIMIT,
    "request-timeout": _SECONDS,
    "db-tx-end": ConfigurationKey(parsers.transaction_end),
    "db-hoisted-tx-settings": _list(parsers.setting_names),
    "db-plan-enabled": _SWITCH,
    "db-aggregates-enabled": _SWITCH,
    "jwt-secret": ConfigurationKey(parsers.jwt_secret, secret=True),
    "jwt-secret-is-base64": _SWITCH,
    "jwt-aud": _TEXT,
    "jwt-role-claim-key": ConfigurationKey(parsers.claim_path),
    "jwt-cache-max-entries": ConfigurationKey(parsers.whole(0)),
    "require-api-key": _SWITCH,
    "publishable-keys": _list(parsers.api_keys, secret=True),
    "secret-keys": _list(parsers.api_keys, secret=True),
    "openapi-mode": ConfigurationKey(parsers.one_of("follow-privileges", "ignore-privileges", "disabled")),
    "openapi-server-proxy-uri": ConfigurationKey(parsers.web_address),
    "rest-max-select-items": ConfigurationKey(parsers.whole(0, maximum=1600)),
    "rest-max-embeds": ConfigurationKey(parsers.whole(0, maximum=100)),
    "graphql-max-depth": _POSITIVE,
    "graphql-max-aliases": _POSITIVE,
    "graphql-max-tokens": _POSITIVE,
    "graphql-max-cost": _POSITIVE,
    "graphql-documents": ConfigurationKey(parsers.folder),
    "graphql-documents-only": _SWITCH,
    "graphql-validation": ConfigurationKey(parsers.one_of("compatible", "strict")),
    "graphql-non-null-relationships": _SWITCH,
    "graphql-features": _list(parsers.features),
    "live-interval": _TIME_LIMIT,
    "live-connections": _POSITIVE,
    "live-subscriptions-per-caller": _POSITIVE,
    "live-ignored-headers": _list(parsers.header_names),
    "log-query": ConfigurationKey(parsers.one_of("no", "errors", "slow", "all")),
    "log-query-threshold": _SECONDS,
    "sql-comments": _SWITCH,
    "client-error-verbosity": ConfigurationKey(parsers.one_of("verbose", "minimal")),
    "server-timing-enabled": _SWITCH,
    "server-version-enabled": _SWITCH,
    "server-trace-header": ConfigurationKey(parsers.header_name),
    "server-cors-allowed-origins": _list(parsers.origins),
    "max-body": _POSITIVE,
    "max-answer": _POSITIVE,
    "app.settings.*": ConfigurationKey(parsers.setting_value, secret=True, empty_means_empty=True),
    "console": ConfigurationKey(parsers.one_of("yes", "no", "local")),
}

WEBHOOKS = {
    "db-uri": ConfigurationKey(parsers.database_uri, secret=True),
    "encryption-key": _list(parsers.encryption_keys, secret=True),
    "retry-waits": _list(parsers.waits),
    "timeout": _SECONDS,
    "retention-days": _POSITIVE,
    "concurrency": _POSITIVE,
    "concurrency-per-host": _POSITIVE,
    "allow-addresses": _list(parsers.networks),
    "require-https": _SWITCH,
    "row-change-types": _list(parsers.event_types),
    "disable-after": ConfigurationKey(parsers.whole(0)),
    "delivery-proxy": ConfigurationKey(parsers.proxy, secret=True),
    "bind-address": _list(parsers.bind_addresses),
    "metrics-organizations": ConfigurationKey(parsers.whole(0)),
    "portal-origins": _list(parsers.origins),
}


SECTIONS = {"dataapi": SERVICE, "project": PROJECT, "webhooks": WEBHOOKS}
"""The keys of each section by its name."""


def is_confidential(name: str, value: Any) -> bool:
    """Whether anyone who reads the value of a key gets in by it."""
    match name:
        case "db-uri" | "db-read-uri":
            return "password" in connection_parameters(value, {})
        case "jwt-secret":
            return can_sign(value)
        case "secret-keys" | "encryption-key":
            return bool(value)
    return False


def sections_of(name: str) -> list[str]:
    """Return the sections that have a key of that name."""
    return [section for section in SECTIONS if key_of(section, name) is not None]


def keys_of(section: str) -> dict[str, ConfigurationKey] | None:
    """Return the keys of a section by its name, None when there is no such section."""
    if section == "project" or section.startswith("project:"):
        return PROJECT
    return SECTIONS.get(section)


def key_of(section: str, name: str) -> ConfigurationKey | None:
    """Return a key of a section, None when there is no such key or section."""
    return (keys_of(section) or {}).get("app.settings.*" if name.startswith(APP_SETTINGS) else name)


def key_of_variable(words: str) -> str:
    """Return the key that the words of an environment variable name, such as ``DB_URI``."""
    setting = words.removeprefix("APP_SETTINGS_")
    return words.lower().replace("_", "-") if setting == words else APP_SETTINGS + setting.lower()
