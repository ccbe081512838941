"""Subcommands for webhooks: organizations, projects, tokens, events, key rotation and the schema.

Each command migrates the schema first. Commands use a blocking connection and no reactor.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TextIO
from uuid import UUID, uuid4

from dataapi.cli.status import Failed, status_of_sqlstate
from dataapi.cli.tables import TextTable
from dataapi.database.address import primary_uri
from dataapi.database.script import ScriptError, complete, opened
from dataapi.database.sql_text import RESTORE_SEARCH_PATH, quote_identifier, quote_literal
from dataapi.http.errors import ApiError
from dataapi.http.strict_json import DIGITS_DECODER
from dataapi.service.configuration.parsers import listed, ref, slug, whole
from dataapi.settings import Settings
from dataapi.webhooks.catalogue import BadPayload, Catalogue
from dataapi.webhooks.event_types import MAX_WATCHED_LENGTH, TYPE, complete_payload
from dataapi.webhooks.model import NewEvent, Permission, Scope
from dataapi.webhooks.plugins import installed_catalogue, with_row_changes
from dataapi.webhooks.secrets import Cipher, NoEncryptionKey
from dataapi.webhooks.store import Store, make_store
from dataapi.webhooks.store.directory import new_token
from dataapi.webhooks.store.enqueue import CannotPublish
from dataapi.webhooks.store.migrations import CannotMigrate, SchemaMigration, migrate
from dataapi.webhooks.store.watches import WATCHES, Watch, watches

Lines = list[str]
Action = Callable[[Store, argparse.Namespace], Awaitable[Lines | TextTable]]

_MAX_LISTED = 10
_SCOPE = ("organization", "organization_column", "project", "project_column")
_DEFAULT_PERMISSIONS = [Permission.READ, Permission.WRITE]


def execute(settings: Settings, options: argparse.Namespace, errors: TextIO) -> Lines | TextTable:
    """Run a subcommand and return its output.

    :raises Failed: the command failed.
    """
    section = settings.webhooks
    if section is None:
        raise Failed(os.EX_CONFIG, "webhooks are off: the configuration has no section [webhooks]")
    uri = primary_uri(section.db_uri or settings.projects[0].db_uri)
    options.settings, options.section, options.uri = settings, section, uri
    options.note = partial(print, file=errors)

    async def run(database: Any) -> Lines | TextTable:
        options.applied = await migrate(database)
        store = make_store(database, Cipher(section.encryption_key), section.retention_days)
        result: Lines | TextTable = await options.action(store, options)
        return result

    try:
        if getattr(options, "organization", "") is None and not getattr(options, "operator", False):
            # Commands name the project as an argument (ref) or an option (project).
            named = getattr(options, "ref", None) or getattr(options, "project", None)
            options.organization = _configured_organization(settings, named)
        if options.printed is not None:
            return [f"{options.printed(options)};"]
        with opened(uri) as database:
            return complete(run(database))
    except ScriptError as error:
        reason = " ".join(str(error).split())
        text = f"webhooks: the database cannot be used: {reason}"
        raise Failed(status_of_sqlstate(error.sqlstate), text) from error
    except ApiError as error:
        text = f"webhooks: {error}; {error.hint}" if error.hint else f"webhooks: {error}"
        raise Failed(status_of_sqlstate(error.code), text) from error
    except CannotMigrate as error:
        raise Failed(os.EX_NOPERM, f"webhooks: {error}") from error
    except (CannotPublish, BadPayload) as error:
        raise _rejected(str(error)) from error


def _configured_organization(settings: Settings, project: str | None) -> str:
    organizations = {
        configured.organization for configured in settings.projects if project in (None, configured.ref)
    }
    if len(organizations) != 1:
        reason = "names several organizations" if organizations else f"has no project {project}"
        raise Failed(os.EX_USAGE, f"webhooks: --organization is required: the configuration {reason}")
    return organizations.pop()


def _rejected(reason: str) -> Failed:
    return Failed(os.EX_DATAERR, f"webhooks: {reason}")


async def _migrate(_store: Store, options: argparse.Namespace) -> Lines:
    """Create or upgrade the schema webhooks."""
    applied: tuple[SchemaMigration, ...] = options.applied
    result = [f"applied migration {migration.number} ({migration.name})" for migration in applied]
    return result or ["the schema webhooks is up to date"]


async def _create_organization(store: Store, options: argparse.Namespace) -> Lines:
    """Add an organization."""
    if not await store.directory.create_organization(options.slug, early_access=options.early_access):
        allow = f"; to add it to the early access allowlist: dataapi organization allow {options.slug}"
        hint = allow if options.early_access else ""
        raise _rejected(f"organization {options.slug} already exists{hint}")
    return []


async def _allow(store: Store, options: argparse.Namespace, *, allowed: bool = True) -> Lines:
    """Add an organization to the early access allowlist."""
    if not await store.directory.set_early_access(options.slug, allowed):
        raise _rejected(f"organization {options.slug} does not exist")
    return []


async def _disallow(store: Store, options: argparse.Namespace) -> Lines:
    """Remove an organization from the early access allowlist."""
    return await _allow(store, options, allowed=False)


async def _list_organizations(store: Store, _options: argparse.Namespace) -> TextTable:
    """List organizations and whether they have early access."""
    organizations = await store.directory.organizations()
    rows = [
        (organization.slug, "early-access" if organization.early_access else "-")
        for organization in organizations
    ]
    return TextTable(("ORGANIZATION", "ALLOWED"), rows)


async def _create_project(store: Store, options: argparse.Namespace) -> Lines:
    """Add a project to an organization."""
    await _organization(store, options)
    if not await store.directory.create_project(options.ref, options.organization):
        raise _rejected(f"project {options.ref} already exists")
    return []


async def _transfer_project(store: Store, options: argparse.Namespace) -> Lines:
    """Transfer a project with its endpoints to another organization."""
    await _organization(store, options)
    key = f"dataapi project transfer {uuid4()}"
    source = await store.directory.transfer_project(options.ref, options.organization, key)
    if source is None:
        raise _rejected(f"project {options.ref} does not exist")
    if source == options.organization:
        raise _rejected(f"project {options.ref} already belongs to organization {source}")
    return []


async def _list_projects(store: Store, _options: argparse.Namespace) -> TextTable:
    """List projects and their organizations."""
    rows = [(project.ref, project.organization) for project in await store.directory.projects()]
    return TextTable(("PROJECT", "ORGANIZATION"), rows)


async def _create_token(store: Store, options: argparse.Namespace) -> Lines:
    """Create an access token and print it. It cannot be shown again."""
    expires = None if options.expires is None else datetime.now(UTC) + timedelta(days=options.expires)
    secret = new_token()
    if options.operator:
        if options.permission:
            raise Failed(
                os.EX_USAGE,
                "webhooks: --permission cannot be used with --operator",
            )
        await store.directory.create_operator_token(secret, expires)
        return [secret]
    await _organization(store, options)
    permissions = options.permission or _DEFAULT_PERMISSIONS
    if not options.permission:
        others = ", ".join(permission for permission in Permission if permission not in _DEFAULT_PERMISSIONS)
        options.note(
            f"note: the token has {' and '.join(_DEFAULT_PERMISSIONS)}; --permission grants others: {others}"
        )
    await store.directory.create_token(secret, options.organization, permissions, expires)
    return [secret]


async def _revoke_token(store: Store, options: argparse.Namespace) -> Lines:
    """Revoke a token."""
    if not await store.directory.revoke(options.id):
        raise _rejected(f"token {options.id} does not exist or has been revoked")
    return []


async def _list_tokens(store: Store, _options: argparse.Namespace) -> TextTable:
    """List tokens with organization, permissions, expiry and status."""
    now = datetime.now(UTC)
    rows: list[tuple[str, ...]] = []
    for token in await store.directory.tokens():
        permissions = "operator" if token.operator else ",".join(sorted(token.permissions))
        expiry = "-" if token.expires_at is None else f"{token.expires_at:%Y-%m-%d}"
        state = "revoked" if token.revoked_at else "usable" if token.is_valid(now) else "expired"
        rows.append((str(token.id), token.organization or "-", permissions, expiry, state))
    return TextTable(("ID", "ORGANIZATION", "PERMISSIONS", "EXPIRES", "STATE"), rows)


async def _reseal(store: Store, _options: argparse.Namespace) -> Lines:
    """Re-encrypt all secrets with the first encryption-key."""
    try:
        result = await store.key_rotation.run()
    except NoEncryptionKey as error:
        raise Failed(os.EX_CONFIG, f"webhooks: {error}") from None
    if result.unreadable:
        listed = ", ".join(map(str, result.unreadable[:_MAX_LISTED]))
        more = ", …" if len(result.unreadable) > _MAX_LISTED else ""
        raise Failed(
            os.EX_CONFIG,
            f"webhooks: endpoints resealed: {result.sealed}; cannot be decrypted with any encryption-key: "
            f"{len(result.unreadable)} ({listed}{more})",
        )
    return [f"endpoints resealed: {result.sealed}"]


async def _publish(store: Store, options: argparse.Namespace) -> Lines:
    """Publish an event and print its identifier."""
    scope = Scope(options.organization, options.project)
    catalogue = with_row_changes(_catalogue(options), await store.row_change_types.list())
    published = catalogue.types.get(options.type)
    if published is not None and published.example.get("project_ref") and options.project is None:
        text = f"webhooks: --project is required for events of type {options.type}"
        raise Failed(os.EX_USAGE, text)
    catalogue.check(options.type, complete_payload(options.payload, options.organization, options.project))
    key = options.idempotency_key
    key = f"dataapi event publish {uuid4()}" if key is None else key
    event = NewEvent(options.type, scope, options.payload, key)
    return [str(await store.publisher.publish(event))]


async def _watch(store: Store, options: argparse.Namespace) -> Lines:
    """Publish each change to a table's rows as an event."""
    catalogue = _catalogue(options)
    await store.publisher.sync_event_types(catalogue.versions(), catalogue.types)
    return _as_owner(options, _watch_call(options))


async def _unwatch(_store: Store, options: argparse.Namespace) -> Lines:
    """Stop publishing changes to a table's rows."""
    return _as_owner(options, _unwatch_call(options))


async def _list_watches(store: Store, options: argparse.Namespace) -> TextTable:
    """List the watched tables with their event types, conditions and status."""
    known = {*_catalogue(options).types, *await store.row_change_types.list()}
    return TextTable(
        ("TABLE", "TYPE", "OPERATIONS", "COLUMNS", "WHEN", "OWNER", "STATE"),
        [_watch_row(watch, known=watch.type in known) for watch in _watches(options)],
    )


async def _add_type(store: Store, options: argparse.Namespace) -> Lines:
    """Add an event type for row changes. Daemons use it within seconds."""
    if options.type in _catalogue(options).types:
        raise _rejected(f"type {options.type} already exists in an event catalogue or the configuration")
    if not await store.row_change_types.add(options.type):
        raise _rejected(f"type {options.type} already exists")
    return []


async def _remove_type(store: Store, options: argparse.Namespace) -> Lines:
    """Remove an event type that no watch uses."""
    tables = ", ".join(watch.table for watch in _watches(options) if watch.type == options.type)
    if tables:
        raise _rejected(f"type {options.type} is published by {tables}: run dataapi webhooks unwatch first")
    if not await store.row_change_types.remove(options.type):
        raise _rejected(f"type {options.type} was not added with dataapi webhooks types add")
    return []


async def _list_types(store: Store, _options: argparse.Namespace) -> TextTable:
    """List the event types that were added for row changes."""
    return TextTable(("TYPE",), [(name,) for name in await store.row_change_types.list()])


def _watches(options: argparse.Namespace) -> Iterable[Watch]:
    with opened(options.uri) as database:
        return watches(complete(database.fetch(WATCHES)))


def _watch_row(watch: Watch, *, known: bool) -> tuple[str, ...]:
    definition = watch.definition
    state = f"writes fail: {watch.state}" if watch.fails else watch.state
    if state == "ok" and not known:
        state = "no event catalogue has the type: endpoints cannot subscribe to it"
    scope = [f"{name.replace('_', '-')}={definition[name]}" for name in _SCOPE if name in definition]
    fields = [
        ",".join(definition.get("operations", ())),
        ",".join(definition.get("columns", ())),
        definition.get("when", ""),
    ]
    fields = [" ".join(field.split()) or "-" for field in (*fields, ",".join(scope))]
    return (watch.table, watch.type, *fields, state)


def _as_owner(options: argparse.Namespace, statement: str) -> Lines:
    with opened(options.owner_uri or options.uri) as database:
        # PostgreSQL resolves the table's name with the search path of the owner.
        complete(database.fetch(RESTORE_SEARCH_PATH + statement))
    return []


def _watch_call(options: argparse.Namespace) -> str:
    named = {name: getattr(options, name) for name in ("columns", "when", "operations", *_SCOPE)}
    always = (f"{quote_identifier('always')} => true",) if options.always else ()
    if not any(named[name] for name in _SCOPE):
        named["organization"] = _configured_organization(options.settings, None)
    return _call(
        "watch",
        _literal(options.table),
        _literal(options.type),
        *(f"{quote_identifier(name)} => {_literal(value)}" for name, value in named.items() if value),
        *always,
    )


def _unwatch_call(options: argparse.Namespace) -> str:
    return _call("unwatch", *(_literal(value) for value in (options.table, options.type) if value))


def _call(function: str, *arguments: str) -> str:
    return f"select webhooks.{function}({', '.join(arguments)})"


def _literal(value: str | Sequence[str]) -> str:
    return (
        quote_literal(value) if isinstance(value, str) else f"array[{', '.join(map(quote_literal, value))}]"
    )


def _catalogue(options: argparse.Namespace) -> Catalogue:
    return installed_catalogue(options.section.row_change_types, options.settings.notify_types)


async def _organization(store: Store, options: argparse.Namespace) -> None:
    if await store.directory.organization(options.organization) is None:
        raise _rejected(f"organization {options.organization} does not exist")


def add(subcommands: Any, common: argparse.ArgumentParser, run: Callable[..., int]) -> None:
    def leaf(group: Any, name: str, action: Action) -> argparse.ArgumentParser:
        summary = action.__doc__ or ""
        parser: argparse.ArgumentParser = group.add_parser(
            name, parents=[common], help=summary, description=summary
        )
        parser.set_defaults(subcommand=run, action=action, printed=None)
        return parser

    def group(name: str, summary: str) -> Any:
        parser = subcommands.add_parser(name, help=summary, description=summary)
        return parser.add_subparsers(required=True, metavar="ACTION")

    leaf(subcommands, "migrate", _migrate)
    organization = group("organization", "Manage organizations.")
    create = leaf(organization, "create", _create_organization)
    create.add_argument("--early-access", action="store_true", help="give the organization early access")
    for parser in (create, leaf(organization, "allow", _allow), leaf(organization, "disallow", _disallow)):
        parser.add_argument(
            "slug", metavar="SLUG", type=_read(slug), help="name of the organization, as in URLs"
        )
    leaf(organization, "list", _list_organizations)
    project = group("project", "Manage projects.")
    for name, action in (("create", _create_project), ("transfer", _transfer_project)):
        parser = leaf(project, name, action)
        parser.add_argument(
            "ref", metavar="REF", type=_read(ref), help="project reference (ref): 20 letters a-z"
        )
        _add_organization(parser, required=action is _transfer_project)
    leaf(project, "list", _list_projects)
    _add_tokens(group("token", "Manage personal access tokens."), leaf)
    leaf(group("secrets", "Manage the encryption of secrets."), "reseal", _reseal)
    _add_watches(group("webhooks", "Publish row changes as events."), leaf)
    publish = leaf(group("event", "Publish events."), "publish", _publish)
    publish.add_argument("type", metavar="TYPE", help="event type, such as v1.project.paused")
    _add_organization(publish)
    publish.add_argument(
        "--project", metavar="REF", type=_read(ref), help="project of the event (default: none)"
    )
    publish.add_argument(
        "--payload",
        metavar="JSON",
        type=_read(_json_object),
        default={},
        help="event payload as a JSON object (default: {})",
    )
    publish.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="publish at most one event for this key within 24 hours (default: a new key)",
    )


def _add_watches(group: Any, leaf: Callable[[Any, str, Action], argparse.ArgumentParser]) -> None:
    watch, unwatch = leaf(group, "watch", _watch), leaf(group, "unwatch", _unwatch)
    leaf(group, "watches", _list_watches)
    summary = "Manage the event types of row changes."
    types = group.add_parser("types", help=summary, description=summary)
    types = types.add_subparsers(required=True, metavar="ACTION")
    for name, action in (("add", _add_type), ("remove", _remove_type)):
        leaf(types, name, action).add_argument(
            "type", metavar="TYPE", type=_read(_row_change_type), help="event type, such as v1.shop.order"
        )
    leaf(types, "list", _list_types)
    for parser, call in ((watch, _watch_call), (unwatch, _unwatch_call)):
        parser.add_argument("table", metavar="TABLE", help="table with its schema, such as shop.orders")
        parser.add_argument(
            "--print",
            dest="printed",
            action="store_const",
            const=call,
            help="print the SQL instead of running it",
        )
        parser.add_argument(
            "--owner-uri", metavar="URI", help="connection string of the table's owner (default: db-uri)"
        )
    watch.add_argument("type", metavar="TYPE", help="event type, such as v1.shop.order")
    unwatch.add_argument("type", metavar="TYPE", nargs="?", help="event type (default: all)")
    watch.add_argument(
        "--columns", metavar="COLUMNS", type=listed, help="comma-separated columns (default: all)"
    )
    watch.add_argument(
        "--operations",
        metavar="OPERATIONS",
        type=listed,
        help="comma-separated operations: insert, update, delete (default: all)",
    )
    watch.add_argument(
        "--when",
        metavar="SQL",
        help="publish only changes that satisfy this condition, such as: new.total > 100",
    )
    watch.add_argument(
        "--always",
        action="store_true",
        help="also publish changes that logical replication makes (session_replication_role = replica)",
    )
    for pair, metavar in (_SCOPE[:2], "SLUG"), (_SCOPE[2:], "REF"):
        alternatives = watch.add_mutually_exclusive_group()
        alternatives.add_argument(
            f"--{pair[0]}", metavar=metavar, default="", help=f"{pair[0]} of the events"
        )
        alternatives.add_argument(
            f"--{pair[0]}-column", metavar="COLUMN", help=f"column that contains the {pair[0]} of the event"
        )


def _add_tokens(group: Any, leaf: Callable[[Any, str, Action], argparse.ArgumentParser]) -> None:
    create = leaf(group, "create", _create_token)
    owner = create.add_mutually_exclusive_group()
    _add_organization(owner)
    owner.add_argument(
        "--operator",
        action="store_true",
        help="create an operator token, which manages organizations, projects and tokens",
    )
    create.add_argument(
        "--permission",
        action="append",
        type=Permission,
        choices=list(Permission),
        help="permission to grant (repeatable; default: webhooks:read and webhooks:write)",
    )
    create.add_argument(
        "--expires",
        metavar="DAYS",
        type=_read(whole(1)),
        help="days until the token expires (default: never)",
    )
    leaf(group, "revoke", _revoke_token).add_argument(
        "id",
        metavar="ID",
        type=_read(_token_id),
        help="identifier of the token, as printed by dataapi token list",
    )
    leaf(group, "list", _list_tokens)


def _add_organization(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    help_ = "new organization" if required else "organization (default: the one in the configuration)"
    parser.add_argument("--organization", metavar="SLUG", required=required, type=_read(slug), help=help_)


def _read(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _token_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError("expected the ID of a token, as printed by dataapi token list") from None


def _row_change_type(text: str) -> str:
    if TYPE.fullmatch(text) is None or len(text) > MAX_WATCHED_LENGTH:
        raise ValueError(
            f"expected an event type such as v1.shop.order, with at most {MAX_WATCHED_LENGTH} characters"
        )
    return text


def _json_object(text: str) -> dict[str, Any]:
    value = DIGITS_DECODER.decode(text)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value
