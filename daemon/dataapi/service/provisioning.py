"""The output of ``dataapi init``: SQL for an administrator to run, and the configuration files."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from dataapi.database.sql_text import quote_identifier, quote_literal

LOGIN_ROLE = "authenticator"
REQUEST_ROLES = ("anon", "authenticated", "service_role")

_ROLES = files("dataapi.database").joinpath("roles.sql").read_text(encoding="utf-8")
_EVENT_TRIGGER = files("dataapi.catalog").joinpath("event_trigger.sql").read_text(encoding="utf-8")
_QUIET = "set local client_min_messages = warning;\nset local search_path = pg_catalog;"
"""Hides notices about existing objects. The search path excludes objects that other users have created."""
_ITERATIONS = 4096
"""PostgreSQL's default number of iterations for SCRAM."""


@dataclass(frozen=True, slots=True)
class RoleAccess:
    """Read access of a role to the exposed schemas.

    A table is written as ``table`` or ``schema.table``. ``everything`` includes future tables.
    """

    everything: bool = False
    tables: tuple[str, ...] = ()


def parse_access(text: str) -> RoleAccess:
    """Parse ``nothing``, ``read`` or a comma-separated list of tables."""
    if text in ("nothing", "read"):
        return RoleAccess(everything=text == "read")
    return RoleAccess(tables=tuple(name.strip() for name in text.split(",") if name.strip()))


@dataclass(frozen=True, slots=True)
class Provision:
    """The setup of a database.

    :ivar schemas: the schemas that the APIs expose, the default one first.
    :ivar access: read access of ``anon`` and ``authenticated``.
    :ivar verifier: SCRAM verifier of the login role's new password, or None to keep its password.
    :ivar webhooks: whether to create the schema ``webhooks`` for the daemon.
    :ivar event_trigger: whether to create event triggers that announce schema changes.
    """

    schemas: tuple[str, ...]
    access: Mapping[str, RoleAccess]
    verifier: str | None = None
    webhooks: bool = False
    event_trigger: bool = True


def scram_verifier(password: str, salt: bytes) -> str:
    """Return the SCRAM verifier of an ASCII password, so that the password itself appears in no log.

    The format is that of ``pg_authid.rolpassword``. RFC 5802 section 3 defines the keys.
    """
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _ITERATIONS)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    salt_text, stored_text, server_text = (
        base64.b64encode(part).decode() for part in (salt, stored_key, server_key)
    )
    return f"SCRAM-SHA-256${_ITERATIONS}:{salt_text}${stored_text}:{server_text}"


def setup_sql(provision: Provision) -> str:
    """Return a transaction that sets up a database. It is idempotent."""
    return "\n".join(["begin;", _QUIET, *_setup(provision), "commit;", ""])


def _setup(provision: Provision) -> Iterator[str]:
    schemas = ", ".join(map(quote_identifier, provision.schemas))
    roles = ", ".join(REQUEST_ROLES)
    yield _ROLES.strip()
    if provision.verifier is not None:
        yield f"alter role {LOGIN_ROLE} password {quote_literal(provision.verifier).strip()};"
    connect = f"grant connect on database %I to {LOGIN_ROLE}"
    yield f"do $$ begin execute format('{connect}', current_database()); end $$;"
    yield f"\n-- Privileges of requests in the exposed schemas.\ngrant usage on schema {schemas} to {roles};"
    for kind in ("tables", "sequences", "routines"):
        yield f"grant all on all {kind} in schema {schemas} to service_role;"
    for role, access in provision.access.items():
        if access.everything:
            yield f"grant select on all tables in schema {schemas} to {role};"
        for table in access.tables:
            yield f"grant select on table {_qualified(table, provision.schemas[0])} to {role};"
    yield _default_privileges(provision)
    if provision.event_trigger:
        yield _event_trigger_sql()
    if provision.webhooks:
        yield "\n-- The daemon stores events and deliveries in this schema."
        yield f"create schema if not exists webhooks authorization {LOGIN_ROLE};"


def _qualified(table: str, schema: str) -> str:
    before, dot, name = table.partition(".")
    parts = (before, name) if dot else (schema, before)
    return ".".join(map(quote_identifier, parts))


def _default_privileges(provision: Provision) -> str:
    grants = [("all", kind, "service_role") for kind in ("tables", "sequences", "routines")]
    grants += [("select", "tables", role) for role, access in provision.access.items() if access.everything]
    schemas = ", ".join(quote_literal(schema).strip() for schema in provision.schemas)
    executed = "\n".join(
        f"        execute format('alter default privileges for role %I in schema %I "
        f"grant {privilege} on {kind} to {role}', owner, schema);"
        for privilege, kind, role in grants
    )
    return f"""
-- The same privileges on objects that the current owners create later in these schemas.
do $$
declare
    owner name;
    schema name;
begin
    for owner, schema in
        select distinct r.rolname, s.nspname
        from pg_namespace s
        cross join lateral (
            select current_user::regrole::oid
            union all select s.nspowner
            union all select relowner from pg_class where relnamespace = s.oid
        ) as o (oid)
        join pg_roles r on r.oid = o.oid
        where s.nspname in ({schemas}) and r.rolname not like 'pg\\_%'
          and pg_has_role(current_user, r.oid, 'MEMBER')
        order by 1, 2
    loop
{executed}
    end loop;
end
$$;"""


def _event_trigger_sql() -> str:
    return f"""
-- Event triggers announce schema changes to the daemon. Only a superuser can create them.
do $announce$
begin
    execute $script$
{_EVENT_TRIGGER.strip()}
$script$;
exception when insufficient_privilege then
    raise warning 'no event trigger was created: run notify pgrst, ''reload schema'' after schema changes';
end
$announce$;"""


_DROP_WEBHOOKS = """do $$
declare
    watch regprocedure;
begin
    for watch in
        select oid from pg_proc
        where proname ~ '^webhooks_watch_[0-9a-f]{32}$' and prorettype = 'trigger'::regtype
    loop
        execute format('drop function %s cascade', watch);
    end loop;
end
$$;
drop schema if exists webhooks cascade;
"""


def removal_sql(*, webhooks: bool) -> str:
    """Return a transaction that undoes ``setup_sql``.

    Roles that are used in other databases of the cluster are not dropped, but lose their privileges in this
    database.

    :param webhooks: whether to drop the watches on tables and the schema ``webhooks``. If false, the current
        user becomes the owner of the watches and the schema.
    """
    roles = ", ".join(f"'{role}'" for role in (LOGIN_ROLE, *REQUEST_ROLES))
    drop_webhooks = _DROP_WEBHOOKS if webhooks else ""
    return f"""begin;
{_QUIET}
drop event trigger if exists dataapi_ddl;
drop event trigger if exists dataapi_drop;
drop schema if exists dataapi cascade;
{drop_webhooks}do $$
declare
    role name;
begin
    for role in select rolname from pg_roles where rolname in ({roles}) loop
        execute format('reassign owned by %I to current_user', role);
        execute format('drop owned by %I', role);
    end loop;
    for role in select rolname from pg_roles where rolname in ({roles}) loop
        begin
            execute format('drop role %I', role);
        exception when dependent_objects_still_exist then
            raise warning 'role % is used in another database and was not dropped', role;
        end;
    end loop;
end
$$;
commit;
"""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of a new configuration, by their keys in ``[project]`` and ``[webhooks]``."""

    project: Mapping[str, str]
    webhooks: Mapping[str, str]


def configuration_files(provision: Provision, secrets: Secrets, config: Path) -> dict[Path, str]:
    folder = config.with_suffix(".secrets")
    texts: dict[Path, str] = {}

    def section(name: str, members: Mapping[str, str]) -> str:
        lines = [f"[{name}]"]
        for key, secret in members.items():
            texts[folder / key] = secret + "\n"
            lines.append(f"{key} = @{folder / key}")
        return "\n".join(lines)

    parts = [section("project", secrets.project)]
    if provision.schemas != ("public",):
        parts[0] += f"\ndb-schemas = {', '.join(provision.schemas)}"
    if provision.webhooks:
        parts.append(section("webhooks", secrets.webhooks))
    return {config: "\n\n".join(parts) + "\n", **texts}
