"""The configuration as immutable values. Each field declares a configuration key.

A key has the field's name, with ``-`` for ``_``, and its type and default. ``Annotated`` names the parser of
its value, in ``service/configuration/parsers.py``. A field without ``repr`` is a secret. Every key can also
be set in the environment, and keys marked ``InDatabase`` in the database.

``#:`` comments are the documentation, from which ``make reference`` generates ``etc/dataapi.ini`` and
``docs/reference/configuration.md``. A field without a comment shares the previous comment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, TypeVar

T = TypeVar("T")

IN_DATABASE = object()
InDatabase = Annotated[T, IN_DATABASE]
"""A configuration key that can also be set in the database, as in PostgREST."""


@dataclass(frozen=True, slots=True)
class Deprecated:
    """Marks a key that a later major version removes: ``Annotated[bool, Deprecated("0.2.0", "new-key")]``.

    :ivar since: the version that deprecated the key.
    :ivar replacement: the key to use instead, "" if there is none.
    """

    since: str
    replacement: str = ""

    def __str__(self) -> str:
        """Return a phrase such as ``deprecated since 0.2.0; use new-key``."""
        remedy = f"use {self.replacement}" if self.replacement else "remove it"
        return f"deprecated since {self.since}; {remedy}"


Names = tuple[str, ...]
Automatic = Annotated[bool | None, "automatic"]
"""A boolean, or None for ``auto``."""
Count = Annotated[int, "count"]
Positive = Annotated[int, "positive"]
Seconds = Annotated[float, "seconds"]
TimeLimit = Annotated[float | None, "time_limit"]
DatabaseUri = Annotated[str, "database_uri"]
Networks = Annotated[Names, "networks"]
Origins = Annotated[Names, "origins"]
ApiKeys = Annotated[Names, "api_keys"]

EMBEDDED_URI = "postgresql:///embedded"
"""Placeholder for ``db-uri`` until the embedded server runs."""

NESTED_INSERTS = "nested-inserts"
REST_FEATURES = (NESTED_INSERTS,)


class TransactionEnd(Enum):
    """``db-tx-end``: how a transaction that may write ends."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    COMMIT_ALLOW_OVERRIDE = "commit-allow-override"
    ROLLBACK_ALLOW_OVERRIDE = "rollback-allow-override"

    @property
    def allows_override(self) -> bool:
        return self.value.endswith("allow-override")

    def rolls_back(self, prefer: str) -> bool:
        """Return whether to roll back a request's transaction.

        :param prefer: value of the ``Prefer`` header. If ``allows_override`` is true, its first ``tx=commit``
            or ``tx=rollback`` overrides this setting.
        """
        if self.allows_override and "tx=" in prefer:
            preferences = [part.strip() for part in prefer.split(",")]
            ends = [part for part in preferences if part in ("tx=rollback", "tx=commit")]
            if ends:
                return ends[0] == "tx=rollback"
        return self.value.startswith("rollback")


@dataclass(frozen=True, slots=True)
class Tour:
    """Credentials for the guided tour of the demo's console. ``account`` is the token's claim ``sub``."""

    account: str
    webhooks_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Project:
    """A database with its APIs.

    For several databases, write one section [project:REF] for each, with the project's 20-letter reference
    as REF. Each project has its own hosts, and the host name of a request selects the project.

    :ivar app_settings: keys ``app.settings.…`` and their values, for SQL to read.
    :ivar settings_error: why the settings in the database cannot be read. If set, every request fails.
    :ivar tour: None except in the demo.
    """

    #: Project reference, 20 letters a-z. Webhook events contain it. In [project:REF] the default is REF.
    ref: Annotated[str, "ref"] = "abcdefghijklmnopqrst"
    #: Slug of the organization that owns the project. It is the default for --organization of "dataapi
    #: project create", "dataapi token create" and "dataapi event publish".
    organization: Annotated[str, "slug"] = "default"
    #: Connection string of the database: a URI or libpq keywords. The login role should be NOINHERIT and a
    #: member of the roles that requests use: anon, authenticated and service_role. Missing parameters come
    #: from libpq's environment variables (PGHOST, PGPORT, PGUSER, PGPASSWORD, PGPASSFILE, PGDATABASE,
    #: PGSSLMODE, PGSERVICE, ...); postgresql:// uses them for all parameters. If there are several hosts,
    #: the daemon connects to the first one that accepts connections, and fails over when a connection is
    #: lost; connect_timeout applies to each host (default: 10 seconds).
    #: postgresql://authenticator@one,two/app?target_session_attrs=read-write finds the primary. Required;
    #: there is no default.
    #: Example: postgresql://authenticator@127.0.0.1/app
    db_uri: DatabaseUri = field(default="", repr=False)
    #: Host names to serve, without ports. Empty: all hosts, allowed only if there is one project.
    hosts: Annotated[Names, "hosts"] = ()
    #: Connection string of replicas that serve reads. Reads run on the first available replica, or on the
    #: least busy one with load_balance_hosts=random; docs/guides/scaling.md lists these reads.
    #: target_session_attrs=standby excludes a primary. Empty: db-uri serves all reads.
    #: Example: postgresql://authenticator@two,three/app?load_balance_hosts=random
    db_read_uri: Annotated[str, "replicas_uri"] | None = field(default=None, repr=False)
    #: Maximum replication lag in seconds. If a replica lags further behind, other servers serve its reads.
    #: 0 or empty: no limit.
    db_read_max_lag: TimeLimit = 10.0
    #: Schemas that the APIs expose. The first one is the default for REST.
    db_schemas: InDatabase[Annotated[Names, "schemas"]] = ("public",)
    #: Additional schemas on the search path that the APIs do not expose, for types and functions of
    #: extensions.
    db_extra_search_path: InDatabase[Annotated[Names, "listed"]] = ("public",)
    #: Role of callers that are not signed in. Empty: every caller needs a token that names a role. Requests
    #: never run as the login role of db-uri or as a superuser.
    db_anon_role: InDatabase[str] = "anon"
    #: Maximum number of database connections in each worker process.
    db_pool: Positive = 10
    #: Seconds that a request waits for a connection before it fails with 504.
    db_pool_acquisition_timeout: Seconds = 10.0
    #: Seconds after which an idle connection is closed, and seconds after which any connection is replaced. 0
    #: or empty: never. One connection always stays open, and connections in use are not closed. Webhook
    #: connections use the values of the first project.
    db_pool_max_idletime: TimeLimit = 30.0
    db_pool_max_lifetime: TimeLimit = 1800.0
    #: Maximum number of rows that REST returns for a request, and that a GraphQL page contains unless a
    #: directive sets another maximum. Empty: no limit for REST, and 30 for GraphQL. A table's directive,
    #: @rest({"max_rows": 100}), takes precedence.
    #: Example: 1000
    db_max_rows: InDatabase[Positive | None] = None
    #: Whether settings in the database override this file, such as alter role authenticator set
    #: pgrst.db_schemas = 'api'. docs/guides/from-postgrest.md lists these settings. The default is no, unlike
    #: PostgREST's, because everyone who may alter the login role could change who has access, and every role
    #: can read these settings.
    db_config: bool = False
    #: Database function that changes settings with calls such as set_config('pgrst.db_schemas', 'api',
    #: true). It is called if db-config = yes. Settings of the login role take precedence.
    #: Example: api.config
    db_pre_config: InDatabase[str | None] = None
    #: Function to run before the statement of each request.
    #: Example: api.check_request
    db_pre_request: InDatabase[str | None] = None
    #: Function whose result replaces the OpenAPI description at /rest/v1/.
    #: Example: api.root
    db_root_spec: InDatabase[str | None] = None
    #: Whether to prepare statements. With auto, they are prepared on connections to PostgreSQL itself and to
    #: poolers that support prepared statements (pgbouncer since 1.21, with max_prepared_statements). With
    #: yes, they are prepared behind every pooler. If the pooler is in transaction mode and does not support
    #: prepared statements, /ready fails.
    db_prepared_statements: InDatabase[Automatic] = None
    #: When statements with a short duration share connections. auto: after several short runs of a statement
    #: (see docs/guides/tuning.md). always: from the first run, for tests. off: never.
    db_lane: Literal["auto", "always", "off"] = "auto"
    #: NOTIFY channel that reloads the schema ('reload schema') and the configuration ('reload config'). The
    #: daemon also listens on the channel dataapi, for the event trigger of "dataapi init".
    db_channel: Annotated[str, "channel"] = "pgrst"
    #: Whether NOTIFY reloads the schema. A pooler in transaction mode drops notifications: with auto, the
    #: daemon does not listen there, and with yes, /ready fails. Without notifications, webhooks in the same
    #: database poll every second.
    db_channel_enabled: Automatic = None
    #: Maximum duration of a caller's statement, in seconds. 0 or empty: no limit. A statement_timeout of the
    #: role, of the called function (see db-hoisted-tx-settings), of the login role or of the database takes
    #: precedence, as does a shorter one in postgresql.conf. In streamed responses, the limit applies to each
    #: batch of rows. The limit does not apply to webhooks and migrations.
    db_statement_timeout: TimeLimit = 30.0
    #: Maximum duration of a request after it was received, in seconds: waiting for a connection, the
    #: statement and the response. A request that takes longer is cancelled and fails with 504. A streamed
    #: response is cut off if one batch of rows takes longer.
    request_timeout: Seconds = 60.0
    #: How the transaction of a request ends: commit, rollback, commit-allow-override or
    #: rollback-allow-override. If the value ends in -allow-override, tx=commit or tx=rollback in the Prefer
    #: header takes precedence.
    db_tx_end: InDatabase[Annotated[TransactionEnd, "transaction_end"]] = TransactionEnd.COMMIT
    #: Settings of a called function ("create function ... set statement_timeout = ...") that apply to its
    #: whole transaction instead of the function alone.
    db_hoisted_tx_settings: InDatabase[Annotated[Names, "setting_names"]] = (
        "statement_timeout",
        "plan_filter.statement_cost_limit",
        "default_transaction_isolation",
    )
    #: Whether REST returns PostgreSQL's plan on request (Accept: application/vnd.pgrst.plan+text).
    db_plan_enabled: InDatabase[bool] = False
    #: Whether REST allows aggregate functions (select=amount.sum()). With them, any caller can make
    #: PostgreSQL read whole tables.
    db_aggregates_enabled: InDatabase[bool] = False
    #: Key that verifies tokens and API keys in JWT form: a secret of 32 characters or more for HS256, a JWK,
    #: a JWKS, or the https URL of a JWKS, such as https://issuer.example.org/.well-known/jwks.json. "dataapi
    #: keys" creates a secret and the keys signed with it.
    #: Example: @/etc/dataapi/jwt-secret
    jwt_secret: InDatabase[Annotated[str, "jwt_secret"] | None] = field(default=None, repr=False)
    #: Whether jwt-secret is base64 or base64url encoded.
    jwt_secret_is_base64: InDatabase[bool] = False
    #: If a token contains audiences (aud), one of them must be this one. Empty: any audience.
    #: Example: authenticated
    jwt_aud: InDatabase[str | None] = None
    #: Path of the role in the claims of a token, such as .app_metadata.role or
    #: ."https://example.org/role"[0]. The first result of a JSONPath query (RFC 9535) is also accepted:
    #: $..roles[?search(@, "^db_")]
    jwt_role_claim_key: InDatabase[Annotated[str, "claim_path"]] = ".role"
    #: Maximum number of verified tokens to cache. 0 turns the cache off.
    jwt_cache_max_entries: Count = 1000
    #: Whether every request needs an API key (header apikey). If not, callers that send neither a key nor a
    #: token use db-anon-role.
    require_api_key: bool = True
    #: Opaque API keys for the role of db-anon-role. They may be public.
    #: Example: sb_publishable_...
    publishable_keys: ApiKeys = field(default=(), repr=False)
    #: Opaque API keys for the role service_role. For servers only.
    #: Example: @/etc/dataapi/secret-keys
    secret_keys: ApiKeys = field(default=(), repr=False)
    #: Tables and functions in the OpenAPI description at /rest/v1/: follow-privileges (only what the caller
    #: may use), ignore-privileges (all) or disabled (no description).
    openapi_mode: InDatabase[Literal["follow-privileges", "ignore-privileges", "disabled"]] = (
        "follow-privileges"
    )
    #: Public address of the REST API in the OpenAPI description, if there is a proxy in front of the daemon.
    #: Default: the host that the request was sent to.
    #: Example: https://api.example.org/rest/v1
    openapi_server_proxy_uri: InDatabase[Annotated[str, "web_address"] | None] = None
    #: Optional features of REST: nested-inserts (POST accepts related rows as members of a row).
    rest_features: Annotated[frozenset[str], "rest_features"] = frozenset()
    #: Limits of a GraphQL document: nesting of fields, number of aliases, number of tokens, and number of
    #: rows that an operation could return according to its page sizes. A page counts as at most 1000 rows
    #: plus twice the table's number of rows as estimated by PostgreSQL.
    graphql_max_depth: Positive = 50
    graphql_max_aliases: Positive = 1_000
    graphql_max_tokens: Positive = 20_000
    graphql_max_cost: Positive = 5_000_000
    #: Folder of persisted documents. Requests may contain a documentId instead of a query. The folder
    #: contains files NAME.graphql, whose id is NAME, and JSON manifests {"id": "text"} as Relay, Apollo and
    #: urql tools write them. The SHA-256 of a document is also an id, with or without the prefix sha256:.
    #: The folder is read at startup and on reload.
    #: Example: /etc/dataapi/documents
    graphql_documents: Annotated[Path, "folder"] | None = None
    #: Whether only the documents in graphql-documents may run. Requests may send their ids or texts.
    graphql_documents_only: bool = False
    #: Rules for GraphQL documents. compatible follows pg_graphql: a variable is checked by its value where it
    #: is used, regardless of its declared type; strings may stand for enum values; unused and duplicate
    #: fragments are ignored. strict applies the rules of the GraphQL specification.
    graphql_validation: Literal["compatible", "strict"] = "compatible"
    #: Whether a relationship is a non-null field if it has an enforced foreign key with NOT NULL columns to
    #: a table without row level security.
    graphql_non_null_relationships: bool = False
    #: Optional GraphQL features to enable for every table: upsert, relationFilters, relationOrder,
    #: nestedInserts, groupBy, jsonFilters, fullText, subscriptions. To enable a feature for one table, use
    #: its directive: @graphql({"upsert": {"enabled": true}}).
    graphql_features: Annotated[frozenset[str], "features"] = frozenset()
    #: Seconds between checks for changes in the database, after which live queries (docs/live.md) run again.
    #: There are no checks while there are no live queries. 0 turns live queries and WebSockets off.
    live_interval: TimeLimit = 1.0
    #: Number of live queries that run at the same time, each on a connection in addition to db-pool.
    live_connections: Positive = 2
    #: Maximum number of live queries and WebSockets of a caller in each process. A caller is identified by
    #: its role and the sub claim of its token or, if there is no sub, its address.
    live_subscriptions_per_caller: Positive = 100
    #: Request headers that are hidden from the statements of live queries, such as x-forwarded-for or sec-*.
    #: Requests that differ only in these headers share a result.
    live_ignored_headers: Annotated[Names, "header_names"] = (
        *("accept-encoding", "accept-language", "baggage", "cache-control", "connection", "dnt"),
        *("keep-alive", "last-event-id", "pragma", "priority", "sec-*", "te", "traceparent"),
        *("tracestate", "user-agent", "x-request-id"),
    )
    #: Callers' statements to log: no, errors (failed statements), slow (failed, or taking log-query-threshold
    #: seconds or longer) or all. Values are logged as $1, $2, ...; each log line contains the request's id.
    log_query: Literal["no", "errors", "slow", "all"] = "no"
    log_query_threshold: Seconds = 0.5
    #: Whether callers' statements begin with a sqlcommenter comment (application, request_id, route and
    #: traceparent) for pg_stat_activity and PostgreSQL's log. Such statements are not prepared.
    sql_comments: bool = False
    #: Detail of error responses: verbose, or minimal (without details and hint).
    client_error_verbosity: InDatabase[Literal["verbose", "minimal"]] = "verbose"
    #: Whether responses have the header Server-Timing with the duration of each stage.
    server_timing_enabled: InDatabase[bool] = False
    #: Request header to repeat in the response, such as traceparent.
    #: Example: X-Request-Id
    server_trace_header: InDatabase[Annotated[str, "header_name"] | None] = None
    #: Origins whose scripts may call the APIs and open WebSockets from a browser, such as
    #: https://app.example.org. Empty: all origins.
    server_cors_allowed_origins: InDatabase[Origins] = ()
    #: URLs of the OAuth authorization servers whose tokens jwt-secret verifies. Agents find the servers
    #: through the metadata of /mcp, and sign their users in there. Empty: agents are configured with a key or
    #: a token.
    #: Example: https://auth.example.org/realms/app
    mcp_authorization_servers: Annotated[Names, "web_addresses"] = ()
    #: Maximum size of a request body in bytes. GraphQL and /mcp accept at most 1 MiB.
    max_body: Positive = 10_485_760
    #: Maximum size of a REST response in bytes. Larger responses fail unless they are streamed. A line of
    #: streamed NDJSON or CSV can be at most a tenth of this size.
    max_answer: Positive = 104_857_600
    #: Settings for SQL to read, with names of your choice: current_setting('app.settings.name', true). They
    #: are sent with every statement. In the environment: DATAAPI_PROJECT_APP_SETTINGS_NAME.
    #: Example: value
    app_settings: Annotated[tuple[tuple[str, str], ...], "setting_value"] = field(default=(), repr=False)
    #: Who may open the console at /console: yes (everyone), no (no one), or local (requests without a
    #: proxy, from a loopback address to a loopback name).
    console: Literal["yes", "no", "local"] = "local"
    settings_error: str | None = None
    tour: Tour | None = None

    @property
    def search_path(self) -> Names:
        return tuple(dict.fromkeys((*self.db_schemas, *self.db_extra_search_path)))

    @property
    def longest_line(self) -> int:
        return self.max_answer // 10


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Signed notifications of events.

    This section enables webhooks, even if it is empty. An environment variable for one of its keys does too.
    Webhooks need the schema "webhooks". "dataapi migrate" creates this schema, as does the daemon at startup
    if its role has the privilege. If the schema "webhooks" is missing, /ready reports the problem.
    """

    #: Connection string of the database that stores endpoints, events and deliveries. Empty: the
    #: database of the first project. Events are delivered immediately if this is PostgreSQL itself or a
    #: pooler in session mode, and otherwise within a second.
    #: Example: postgresql://webhooks@127.0.0.1/webhooks
    db_uri: DatabaseUri | None = field(default=None, repr=False)
    #: Keys that encrypt signing secrets and custom headers in the database: 32 bytes in base64 each;
    #: "dataapi keys" creates one. Endpoints cannot be created without a key. The first key encrypts, and all
    #: keys decrypt. To change the key, insert the new one at the beginning, run "dataapi secrets
    #: reseal", and remove the old one.
    #: Example: @/etc/dataapi/encryption-key
    encryption_key: Annotated[Names, "encryption_keys"] = field(default=(), repr=False)
    #: Seconds to wait before attempts 2, 3, 4, ... of a delivery, counted from the end of the previous
    #: attempt.
    retry_waits: Annotated[tuple[float, ...], "waits"] = (10.0, 30.0, 90.0, 270.0)
    #: Seconds to wait for a receiver's response.
    timeout: Seconds = 20.0
    #: Days for which deliveries are listed and can be retried.
    retention_days: Positive = 14
    #: Maximum number of concurrent attempts in each process: in total, and to one host. An endpoint starts
    #: with one concurrent attempt. Each response adds one, and each timeout halves the number. An endpoint
    #: is slow if its last attempt took a quarter of timeout or longer. Slow endpoints together use at most
    #: half of concurrency and, at each host, a quarter of concurrency-per-host. No organization can use all
    #: of concurrency or concurrency-per-host.
    concurrency: Positive = 256
    concurrency_per_host: Positive = 16
    #: Networks that are exempt from the rule that receivers must have public addresses, such as 10.1.0.0/16.
    #: The URL of a receiver in these networks may contain an address instead of a name.
    allow_addresses: Networks = ()
    #: Whether receivers must have https URLs.
    require_https: bool = False
    #: Event types for row changes (webhooks.watch), such as v1.shop.order. "dataapi webhooks types add"
    #: adds types while daemons run.
    row_change_types: Annotated[Names, "event_types"] = ()
    #: Days of failed attempts after which an endpoint is disabled. 0: never. The endpoint's owner can enable
    #: it again.
    disable_after: Count = 5
    #: HTTP proxy for deliveries (CONNECT), such as http://user:password@proxy.example.org:3128. The
    #: receiver's address is checked first, and the proxy connects to the checked address.
    delivery_proxy: Annotated[str, "proxy"] | None = field(default=None, repr=False)
    #: Local addresses from which deliveries are sent: one IPv4 address, one IPv6 address, or both. Receivers
    #: without an address of the same IP version cannot be reached.
    bind_address: Annotated[Names, "bind_addresses"] = ()
    #: Maximum number of organizations with separate metrics: the busiest ones. The others share one label.
    metrics_organizations: Count = 0
    #: Origins whose pages may show the customer portal (/portal) in a frame, such as
    #: https://app.example.org. Empty: none.
    portal_origins: Origins = ()


@dataclass(frozen=True, slots=True)
class NotifyChannel:
    """A channel whose notifications (NOTIFY) are published as events.

    Any PostgreSQL database works, and programs that call pg_notify need no change. For several
    channels, write one section [notify:NAME] for each; NAME consists of letters a-z and digits. Requires
    [webhooks] and the extra "notify": pip install 'dataapi-daemon[notify]'. Notifications that are sent while
    the daemon does not listen are lost (docs/webhooks.md, Events from NOTIFY).

    :ivar section: name of the section.
    """

    section: str = "notify"
    #: Connection string of the database. It must not be a pooler in transaction mode. Empty: the
    #: database of the first project.
    #: Example: postgresql://listener@127.0.0.1/shop
    db_uri: DatabaseUri = field(default="", repr=False)
    #: Channel, as in pg_notify('orders', '{"total": 12}'). Required.
    #: Example: orders
    channel: Annotated[str, "notify_channel"] = ""
    #: Type of the events. If no catalogue contains the type, it is added, and its payload may have any
    #: members. Required.
    #: Example: v1.shop.order
    event_type: Annotated[str, "event_type"] = ""
    #: Organization of the events. Required: either organization (its slug) or organization-member (the member
    #: of the payload that contains the slug).
    #: Example: acme
    organization: Annotated[str, "slug"] | None = None
    organization_member: str | None = None
    #: Project of the events. Set project to its reference, or project-member to the member of the payload
    #: that contains the reference. If neither is set, or the member is missing or null, the event belongs to
    #: the organization.
    #: Example: abcdefghijklmnopqrst
    project: Annotated[str, "ref"] | None = None
    project_member: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """A complete, validated configuration.

    :ivar webhooks: None if there is no section ``[webhooks]``.
    :ivar file: the configuration file, or None if all values come from the environment.
    :ivar secret_files: files that contain secrets, possibly including ``file``.
    :ivar deprecations: warnings about deprecated keys that are set.
    """

    projects: tuple[Project, ...]
    #: Addresses of the APIs: Twisted endpoint strings, one per line (tcp, tcp6, ssl, unix, systemd). Under
    #: systemd socket activation: systemd:domain=INET:name=http
    listen: Annotated[Names, "some_endpoints"] = ("tcp:8000:interface=127.0.0.1",)
    #: Private addresses of /live, /ready, /metrics, /schema_cache and /reload; never use public ones. Empty:
    #: none.
    admin_listen: Annotated[Names, "endpoints"] = ("tcp:8001:interface=127.0.0.1",)
    #: Whether another process may listen on the same TCP ports (SO_REUSEPORT), such as a new daemon that
    #: starts before the old one ends. Each daemon needs its own admin-listen address.
    server_reuseport: bool = False
    #: Number of processes that share the listening sockets; auto is one per core.
    workers: Annotated[int, "workers"] = 1
    #: Seconds after SIGTERM during which the daemon still handles requests, while /ready returns 503 and
    #: every response closes its connection. Proxies can redirect requests during this time
    #: (docs/guides/scaling.md, Many daemons). TimeoutStopSec of the systemd unit must be 40 seconds longer.
    shutdown_delay: Count = 0
    #: Projects that must be ready for /ready to return 200: any (one is enough, so that the loss of one
    #: project's database does not take the others offline) or all. /ready?project=REF checks one project.
    ready_requires: Literal["any", "all"] = "any"
    #: Maximum number of client connections in each process. At the limit, a new connection replaces the
    #: oldest connection that is idle or has not sent a complete request. If no connection can be replaced,
    #: the new connection's request fails with 503.
    max_connections: Positive = 1000
    #: Maximum number of client connections from one address. Empty: half of max-connections.
    max_connections_per_address: Positive | None = None
    #: Addresses and networks of the proxies in front of the daemon, such as 10.1.2.3, 10.2.0.0/16. The
    #: client's address, for every limit and log line, is the last address in X-Forwarded-For that is not in
    #: this list. X-Forwarded-For from other addresses is ignored. max-connections-per-address does not apply
    #: to these proxies. Unix sockets are always trusted. Empty: no address is trusted.
    trusted_proxies: Networks = ("127.0.0.0/8", "::1")
    #: Seconds after which an idle connection is closed. It must exceed the time for which the proxy or load
    #: balancer in front of the daemon keeps idle connections open (60 seconds for most). Otherwise the proxy
    #: may send a request on a connection that is being closed, and respond with 502.
    keep_alive_timeout: Seconds = 75.0
    #: Maximum size of all request bodies in memory, in bytes, in each process. Further requests fail with
    #: 503.
    max_bodies: Positive = 67_108_864
    #: Maximum number of live queries (docs/live.md) and WebSockets in each process. Their connections do not
    #: count toward max-connections.
    max_subscriptions: Count = 10_000
    #: Format of the log: json (one object per line) or text. systemd's journal gets text with fields
    #: instead: journalctl --output verbose.
    log_format: Literal["json", "text"] = "json"
    #: Requests to log: crit (none), error (responses with 5xx), warn (also 4xx and errors in GraphQL
    #: responses), info or debug (all).
    log_level: Literal["crit", "error", "warn", "info", "debug"] = "error"
    #: Whether log lines contain the token's sub claim. It may be personal data.
    log_subject: bool = False
    #: Whether agents may use the database through the Model Context Protocol at /mcp (docs/mcp.md), each with
    #: the privileges of its caller.
    mcp: bool = False
    #: Whether agents may write, with functions and the tools insert_rows, update_rows and delete_rows. If
    #: not, every transaction of an agent is read-only.
    mcp_writes: bool = False
    webhooks: Webhooks | None = None
    notify: tuple[NotifyChannel, ...] = ()
    file: Path | None = None
    secret_files: tuple[Path, ...] = field(default=(), compare=False)
    deprecations: tuple[str, ...] = field(default=(), compare=False)

    @property
    def notify_types(self) -> tuple[str, ...]:
        return tuple(channel.event_type for channel in self.notify)

    @property
    def connections_per_address(self) -> int:
        return self.max_connections_per_address or -(-self.max_connections // 2)
