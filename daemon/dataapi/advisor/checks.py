"""The advisor's checks, their query and their findings. Each check has an SQL file named after it.

``reach.sql`` documents the query's parameter and defines the common table expressions of all checks. Each
check returns ``object``, ``why`` and ``fix``. ``directive-without-effect.sql`` also returns ``comment``, for
``directives``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dataapi.advisor.directives import idle_directives
from dataapi.catalog.model import Catalog
from dataapi.settings import Project

GUIDE = "docs/guides/advisor.md"

SECURITY, SPEED, DATA = "security", "speed", "data"

CHECKS = {
    "table-without-row-security": (SECURITY, "Table without row level security"),
    "policy-always-true": (SECURITY, "Policy that is always true"),
    "view-bypasses-policies": (SECURITY, "View that bypasses policies"),
    "definer-function-callable-by-anon": (SECURITY, "SECURITY DEFINER function that anyone may call"),
    "definer-function-search-path": (SECURITY, "SECURITY DEFINER function without a search path"),
    "sequence-near-end": (DATA, "Sequence near its end"),
    "unlogged-table": (DATA, "Unlogged table"),
    "policy-calls-function-per-row": (SPEED, "Policy that calls a function for each row"),
    "policy-column-without-index": (SPEED, "Unindexed column in a policy"),
    "foreign-key-without-index": (SPEED, "Foreign key without an index"),
    "several-permissive-policies": (SPEED, "Several permissive policies for one command"),
    "duplicate-index": (SPEED, "Duplicate index"),
    "huge-table": (SPEED, "Huge table without partitions"),
    "directive-without-effect": (DATA, "Directive without effect"),
}
"""Kind and title of each check, most urgent first."""

_DIRECTIVES = "directive-without-effect"

SETTINGS = (
    "select pg_catalog.set_config('jit','off',true), pg_catalog.set_config('search_path','pg_catalog',true)"
)
"""Statement to run before the query, in the same transaction.

It disables JIT, because compiling the query would take longer than running it.
"""


@dataclass(frozen=True, slots=True)
class SchemaFinding:
    """A risk or performance problem in the schema.

    :ivar check: name of the check, a key of ``CHECKS``.
    :ivar object: the object, such as ``table public.note``.
    :ivar why: what is wrong with the object, without a period.
    :ivar fix: SQL that fixes the problem.
    """

    check: str
    object: str
    why: str
    fix: str

    @property
    def name(self) -> str:
        """Name of the finding, as accepted by ``dataapi advise --ignore``."""
        return f"{self.check}: {self.object}"

    @property
    def docs(self) -> str:
        return f"{GUIDE}#{self.check}"

    def as_json(self) -> dict[str, str]:
        kind, title = CHECKS[self.check]
        return {"kind": kind, "title": title, **asdict(self), "docs": self.docs}


@cache
def query() -> str:
    """Return the query that runs all checks. A row contains a check's name and a finding as a JSON object."""
    folder = files("dataapi.advisor")
    reach = folder.joinpath("reach.sql").read_text(encoding="utf-8")
    parts = [
        f"select '{check}', to_json(found)::text from (\n"
        f"{folder.joinpath(f'{check}.sql').read_text(encoding='utf-8')}) as found"
        for check in CHECKS
    ]
    return reach + "\nunion all\n".join(parts)


def parameter(project: Project, catalog: Catalog) -> str:
    roles = [role.name for role in catalog.roles.values() if role.forbidden_kind is None]
    schemas, path = project.db_schemas, project.search_path
    return json.dumps(
        {"schemas": schemas, "roles": roles, "anon": project.db_anon_role or None, "path": path}
    )


def findings(catalog: Catalog, rows: Iterable[Sequence[Any]]) -> list[SchemaFinding]:
    found = list(_findings(catalog, [(str(check), json.loads(body)) for check, body in rows]))
    order = list(CHECKS)
    return sorted(found, key=lambda one: (order.index(one.check), one.object, one.why))


def _findings(catalog: Catalog, rows: Sequence[tuple[str, dict[str, str]]]) -> Iterator[SchemaFinding]:
    comments = [row for check, row in rows if check == _DIRECTIVES]
    yield from (SchemaFinding(_DIRECTIVES, *idle) for idle in idle_directives(catalog, comments))
    yield from (SchemaFinding(check, **row) for check, row in rows if check != _DIRECTIVES)


def unknown_checks(ignored: Iterable[str]) -> list[str]:
    return [name for text in ignored if (name := text.partition(":")[0].strip()) not in CHECKS]


def without(found: Iterable[SchemaFinding], ignored: Iterable[str]) -> list[SchemaFinding]:
    """Return the findings that are not ignored.

    ``ignored`` contains checks, or names such as ``unlogged-table: table public.cache``.
    """
    names = {": ".join(part.strip() for part in text.split(":", 1)) for text in ignored}
    return [one for one in found if names.isdisjoint((one.check, one.name))]
