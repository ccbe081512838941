"""The configuration as frozen values, read from an ini file, the environment and secret files.

Keys and defaults are those of ``etc/dataapi.ini``; see its comments for what each is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class TransactionEnd(Enum):
    """``db-tx-end``: how a transaction that may write ends."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    COMMIT_ALLOW_OVERRIDE = "commit-allow-override"
    ROLLBACK_ALLOW_OVERRIDE = "rollback-allow-override"

    @property
    def allows_override(self) -> bool:
        """Whether the client may choose how its transaction ends."""
        return self.value.endswith("allow-override")

    def rolls_back(self, prefer: str) -> bool:
        """Whether a transaction is undone, where the ``Prefer`` header may choose the other end.

        :param prefer: the header's value, with ``tx=commit`` or ``tx=rollback`` among its preferences, of
            which the first one counts.
        """
        if self.allows_override and "tx=" in prefer:
            preferences = [part.strip() for part in prefer.split(",")]
            ends = [part for part in preferences if part in ("tx=rollback", "tx=commit")]
            if ends:
                return ends[0] == "tx=rollback"
        return self.value.startswith("rollback")


@dataclass(frozen=True, slots=True)
class Project:
    """A ``[project]`` section: one database, its keys and its limits. Secrets are not shown by ``repr``.

    None stands for ``auto``.

    :ivar settings_error: why the settings in the database cannot be had, without which nothing is answered.
    :ivar app_settings: the keys ``app.settings.…`` with their values, for SQL to read.
    """

    ref: str
    organization: str
    db_uri: str = field(repr=False)
    hosts: tuple[str, ...] = ()
    db_read_uri: str | None = field(default=None, repr=False)
    db_read_max_lag: float | None = 10.0
    db_schemas: tuple[str, ...] = ("public",)
    db_extra_search_path: tuple[str, ...] = ("public",)
    db_anon_role: str = "anon"
    db_pool: int = 10
    db_pool_acquisition_timeout: float = 10.0
    db_pool_max_idletime: float | None = 30.0
    db_pool_max_lifetime: float | None = 1800.0
    db_max_rows: int | None = None
    db_config: bool = False
    db_pre_config: str | None = None
    db_pre_request: str | None = None
    db_root_spec: str | None = None
    db_prepared_statements: bool | None = None
    db_channel: str = "pgrst"
    db_channel_enabled: bool | None = None
    db_statement_timeout: float | None = 30.0
    request_timeout: float = 60.0
    db_tx_end: TransactionEnd = TransactionEnd.COMMIT
    db_hoisted_tx_settings: tuple[str, ...] = (
        "statement_timeout",
        "plan_filter.statement_cost_limit",
        "default_transaction_isolation",
    )
    db_plan_enabled: bool = False
    db_aggregates_enabled: bool = False
    jwt_secret: str | None = field(default=None, repr=False)
    jwt_secret_is_base64: bool = False
    jwt_aud: str | None = None
    jwt_role_claim_key: str = ".role"
    jwt_cache_max_entries: int = 1000
    require_api_key: bool = True
    publishable_keys: tuple[str, ...] = field(default=(), repr=False)
    secret_keys: tuple[str, ...] = field(default=(), repr=False)
    openapi_mode: str = "follow-privileges"
    openapi_server_proxy_uri: str | None = None
    rest_max_select_items: int = 500
    rest_max_embeds: int = 100
    graphql_max_depth: int = 50
    graphql_max_aliases: int = 1_000
    graphql_max_tokens: int = 20_000
    graphql_max_cost: int = 5_000_000
    graphql_documents: Path | None = None
    graphql_documents_only: bool = False
    graphql_validation: str = "compatible"
    graphql_non_null_relationships: bool = False
    graphql_features: frozenset[str] = frozenset()
    log_query: str = "no"
    log_query_threshold: float = 0.5
    sql_comments: bool = False
    client_error_verbosity: str = "verbose"
    server_timing_enabled: bool = False
    server_version_enabled: bool = False
    server_trace_header: str | None = None
    server_cors_allowed_origins: tuple[str, ...] = ()
    max_body: int = 10_485_760
    max_answer: int = 104_857_600
    app_settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    console: str = "local"
    live_interval: float | None = 1.0
    live_connections: int = 2
    live_subscriptions_per_caller: int = 100
    live_ignored_headers: tuple[str, ...] = (
        *("accept-encoding", "accept-language", "baggage", "cache-control", "connection", "dnt"),
        *("keep-alive", "last-event-id", "pragma", "priority", "sec-*", "te", "traceparent"),
        *("tracestate", "user-agent", "x-request-id"),
    )
    settings_error: str | None = None

    @property
    def search_path(self) -> tuple[str, ...]:
        """The schemas that statements find names in: those of the APIs before the others."""
        return tuple(dict.fromkeys((*self.db_schemas, *self.db_extra_search_path)))

    @property
    def longest_line(self) -> int:
        """Bytes of the longest line of a streamed answer."""
        return self.max_answer // 10


@dataclass(frozen=True, slots=True)
class Webhooks:
    """The ``[webhooks]`` section.  Waits and times are in seconds, those of days excepted.

    :ivar disable_after: days.
    """

    db_uri: str | None = field(default=None, repr=False)
    encryption_key: tuple[str, ...] = field(default=(), repr=False)
    retry_waits: tuple[float, ...] = (10.0, 30.0, 90.0, 270.0)
    timeout: float = 20.0
    retention_days: int = 14
    concurrency: int = 256
    concurrency_per_host: int = 16
    allow_addresses: tuple[str, ...] = ()
    require_https: bool = False
    row_change_types: tuple[str, ...] = ()
    disable_after: int = 5
    delivery_proxy: str | None = field(default=None, repr=False)
    bind_address: tuple[str, ...] = ()
    metrics_organizations: int = 0
    portal_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """A whole configuration, checked.

    :ivar webhooks: None without the section, which turns them on.
    :ivar file: where it was read from, None for the environment alone.
    :ivar secret_files: the files that hold its secrets, that file among them if it has some itself.
    """

    projects: tuple[Project, ...]
    listen: tuple[str, ...] = ("tcp:8000:interface=127.0.0.1",)
    admin_listen: tuple[str, ...] = ("tcp:8001:interface=127.0.0.1",)
    server_reuseport: bool = False
    workers: int = 1
    shutdown_delay: int = 0
    ready_requires: str = "any"
    max_connections: int = 1000
    max_connections_per_address: int | None = None
    trusted_proxies: tuple[str, ...] = ("127.0.0.0/8", "::1")
    header_timeout: float = 10.0
    keep_alive_timeout: float = 75.0
    max_bodies: int = 67_108_864
    max_subscriptions: int = 10_000
    log_format: str = "json"
    log_level: str = "error"
    log_subject: bool = False
    webhooks: Webhooks | None = None
    file: Path | None = None
    secret_files: tuple[Path, ...] = field(default=(), compare=False)

    @property
    def connections_per_address(self) -> int:
        """Connections of each process that clients at one address may have."""
        return self.max_connections_per_address or -(-self.max_connections // 2)
