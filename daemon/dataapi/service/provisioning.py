"""What ``dataapi init`` makes: SQL that an administrator runs, and the configuration of a daemon for it."""

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
"""Notices about what was there, or not there, before are no use to who runs a script that may be repeated.

An administrator's script finds nothing that others have created.
"""
_ITERATIONS = 4096
"""PostgreSQL's own number of rounds for a SCRAM verifier."""


@dataclass(frozen=True, slots=True)
class RoleAccess:
    """What a role may read in the exposed schemas.

    :ivar everything: every table, also those that are created later.
    :ivar tables: these tables, each ``table`` or ``schema.table``.
    """

    everything: bool = False
    tables: tuple[str, ...] = ()


def parse_access(text: str) -> RoleAccess:
    """Read ``nothing``, ``read`` or a list of tables, separated by commas."""
    if text in ("nothing", "read"):
        return RoleAccess(everything=text == "read")
    return RoleAccess(tables=tuple(name.strip() for name in text.split(",") if name.strip()))


@dataclass(frozen=True, slots=True)
class Provision:
    """What is set up in a database.

    :ivar schemas: those that the APIs expose, the default one first.
    :ivar access: what each of ``anon`` and ``authenticated`` may read.
    :ivar verifier: the login role's new password as a SCRAM verifier, None to leave its password alone.
    :ivar webhooks: whether the daemon gets the schema ``webhooks``.
    :ivar event_trigger: whether schema changes announce themselves.
    """

    schemas: tuple[str, ...]
    access: Mapping[str, RoleAccess]
    verifier: str | None = None
    webhooks: bool = False
    event_trigger: bool = True


def scram_verifier(password: str, salt: bytes) -> str:
    """Return what PostgreSQL stores of an ASCII password, so that no log or history has the password itself.

    The form is that of ``pg_authid.rolpassword``; the keys are those of RFC 5802 section 3.
    """
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt_text, stored_text, server_text = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${_ITERATIONS}:{salt_text}${stored_text}:{server_text}"


def setup_sql(provision: Provision) -> str:
    """Return one transaction that sets a database up; running it again changes nothing."""
    return "\n".join(["begin;", _QUIET, *_setup(provision), "commit;", ""])


def _setup(provision: Provision) -> Iterator[str]:
    schemas = ", ".join(map(quote_identifier, provision.schemas))
    roles = ", ".join(REQUEST_ROLES)
    yield _ROLES.strip()
    if provision.verifier is not None:
        yield f"alter role {LOGIN_ROLE} password {quote_literal(provision.verifier).strip()};"
    connect = f"grant connect on database %I to {LOGIN_ROLE}"
    yield f"do $$ begin execute format('{connect}', current_database()); end $$;"
    yield f"\n-- What requests may do in the exposed schemas.\ngrant usage on schema {schemas} to {roles};"
    for kind in ("tables", "sequences", "routines"):
        yield f"grant all on all {kind} in schema {schemas} to service_role;"
    for role, access in provision.access.items():
        if access.everything:
            yield f"grant select on all tables in schema {schemas} to {role};"
        for table in access.tables:
            yield f"grant select on table {_qualified(table, provision.schemas[0])} to {role};"
    yield _default_privileges(provision)
    if provision.event_trigger:
        yield _announced_changes()
    if provision.webhooks:
        yield "\n-- The daemon keeps events and deliveries here."
        yield f"create schema if not exists webhooks authorization {LOGIN_ROLE};"


def _qualified(table: str, schema: str) -> str:
    before, dot, name = table.partition(".")
    parts = (before, name) if dot else (schema, before)
    return ".".join(map(quote_identifier, parts))


def _default_privileges(provision: Provision) -> str:
    """Return SQL for the privileges of what is created later, by any role that owns something there now."""
    grants = [("all", kind, "service_role") for kind in ("tables", "sequences", "routines")]
    grants += [("select", "tables", role) for role, access in provision.access.items() if access.everything]
    schemas = ", ".join(quote_literal(schema).strip() for schema in provision.schemas)
    executed = "\n".join(
        f"        execute format('alter default privileges for role %I in schema %I "
        f"grant {privilege} on {kind} to {role}', owner, schema);"
        for privilege, kind, role in grants
    )
    return f"""
-- The same for what is created later, by any role that owns something there now.
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


def _announced_changes() -> str:
    return f"""
-- The database announces changes of its structure, so that the APIs follow them.  That takes a superuser.
do $announce$
begin
    execute $script$
{_EVENT_TRIGGER.strip()}
$script$;
exception when insufficient_privilege then
    raise warning 'without an event trigger, new tables appear after: notify pgrst, ''reload schema''';
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
    """Return one transaction that undoes ``setup_sql``.

    Roles that are used in other databases of the cluster stay, without privileges in this one.

    :param webhooks: whether to drop the watches of tables, and the schema ``webhooks`` with its events; else
        its owner changes.
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
            raise warning 'role % is used in another database and stays', role;
        end;
    end loop;
end
$$;
commit;
"""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of a new configuration, by the key of ``[project]`` or ``[webhooks]`` that each is for."""

    project: Mapping[str, str]
    webhooks: Mapping[str, str]


def configuration_files(provision: Provision, secrets: Secrets, config: Path) -> dict[Path, str]:
    """Return the texts of a configuration and of the files that hold its secrets, by their paths."""
    folder = config.with_suffix(".secrets")
    found: dict[Path, str] = {}

    def section(name: str, members: Mapping[str, str]) -> str:
        lines = [f"[{name}]"]
        for key, secret in members.items():
            found[folder / key] = secret + "\n"
            lines.append(f"{key} = @{folder / key}")
        return "\n".join(lines)

    parts = [section("project", secrets.project)]
    if provision.schemas != ("public",):
        parts[0] += f"\ndb-schemas = {', '.join(provision.schemas)}"
    if provision.webhooks:
        parts.append(section("webhooks", secrets.webhooks))
    return {config: "\n\n".join(parts) + "\n", **found}
