"""Names, order and documentation of the advisor's checks."""

from __future__ import annotations

from importlib.resources import files

import pytest
from dataapi.advisor.checks import CHECKS, SETTINGS, SchemaFinding, query, unknown_checks, without
from support import documents
from support.unqualified import unqualified

CACHE = SchemaFinding("unlogged-table", "table public.cache", "why", "fix")
OTHER = SchemaFinding("unlogged-table", 'table public."a: b"', "why", "fix")
HUGE = SchemaFinding("huge-table", "table public.cache", "why", "fix")


@pytest.mark.parametrize("check", CHECKS)
def test_link_of_a_finding_leads_to_a_section(check: str) -> None:
    page, _, anchor = SchemaFinding(check, "object", "why", "fix").docs.partition("#")
    assert anchor in documents.anchors(documents.read(page))


def test_each_check_is_one_file() -> None:
    names = {path.name.removesuffix(".sql") for path in files("dataapi.advisor").iterdir()}
    assert {name for name in names if not name.endswith(".py") and not name.startswith("__")} == {
        *CHECKS,
        "reach",
    }


def test_query_depends_on_no_search_path_of_the_session() -> None:
    assert unqualified(f"{SETTINGS};{query()}") == []
    assert unqualified(query())


@pytest.mark.parametrize(
    ("ignored", "left"),
    [
        ([], [CACHE, OTHER, HUGE]),
        (["unlogged-table"], [HUGE]),
        (["unlogged-table: table public.cache"], [OTHER, HUGE]),
        (["unlogged-table:table public.cache ", "huge-table"], [OTHER]),
        (['unlogged-table: table public."a: b"'], [CACHE, HUGE]),
        (["unlogged-table: table"], [CACHE, OTHER, HUGE]),
    ],
)
def test_ignored_findings_are_left_out(ignored: list[str], left: list[SchemaFinding]) -> None:
    assert without([CACHE, OTHER, HUGE], ignored) == left


def test_unknown_checks_are_found() -> None:
    assert unknown_checks(["unlogged-table", "huge-table: table public.t", "huge", "huge: x"]) == [
        "huge",
        "huge",
    ]
