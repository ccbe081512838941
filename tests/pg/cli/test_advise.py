"""``dataapi advise``: output, exit statuses, and the guide (docs/guides/advisor.md)."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.advisor.checks import CHECKS
from dataapi.cli.main import run
from support import documents

if TYPE_CHECKING:
    from support.postgres import Database, Server

KEY = {"DATAAPI_PROJECT_JWT_SECRET": "not-so-secret-but-long-enough-32"}
UNREACHABLE = "postgresql://nobody@127.0.0.1:1/none"
OPEN = "create table note (id int primary key); grant select, delete on note to anon;"
CACHE = "create unlogged table cache (id int primary key); grant select on cache to service_role;"
GUIDE = "docs/guides/advisor.md"
PAGE = documents.read(GUIDE)


def advise(uri: str, *arguments: str) -> tuple[int, str, str]:
    """Return the exit status, the output and the errors."""
    output, errors = io.StringIO(), io.StringIO()
    status = run(["advise", *arguments], {"DATAAPI_PROJECT_DB_URI": uri, **KEY}, output, errors)
    return status, output.getvalue(), errors.getvalue()


def found(uri: str, *arguments: str) -> list[dict[str, Any]]:
    status, output, errors = advise(uri, "--format", "json", *arguments)
    findings: list[dict[str, Any]] = json.loads(output)["findings"]
    assert (status, errors) == (int(bool(findings)), "")
    return findings


def test_text_contains_reason_fix_and_section(database: Database) -> None:
    database.execute(OPEN)
    assert advise(database.uri) == (
        1,
        "table-without-row-security: table public.note\n"
        "    anon may select, delete any row\n"
        "    alter table public.note enable row level security;\n"
        f"    {GUIDE}#table-without-row-security\n"
        "\n"
        "1 finding\n",
        "",
    )


def test_schema_without_findings_succeeds(database: Database) -> None:
    assert advise(database.uri) == (0, "0 findings\n", "")
    assert found(database.uri) == []


def test_json_has_most_urgent_findings_first(database: Database) -> None:
    database.execute(CACHE + OPEN)
    security, data = found(database.uri)
    assert security == {
        "kind": "security",
        "title": "Table without row level security",
        "check": "table-without-row-security",
        "object": "table public.note",
        "why": "anon may select, delete any row",
        "fix": "alter table public.note enable row level security;",
        "docs": f"{GUIDE}#table-without-row-security",
    }
    assert (data["kind"], data["object"]) == ("data", "table public.cache")


def test_checks_and_single_findings_can_be_ignored(database: Database) -> None:
    database.execute(CACHE + OPEN + "create table other (id int primary key); grant select on other to anon;")
    ignored = ("--ignore", "unlogged-table", "--ignore", "table-without-row-security:table public.other")
    assert [each["object"] for each in found(database.uri, *ignored)] == ["table public.note"]
    assert found(database.uri, *ignored, "--ignore", "table-without-row-security") == []


def test_unknown_check_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        advise(UNREACHABLE, "--ignore", "unloged-table: table public.t")
    assert exit_.value.code == os.EX_USAGE
    assert "no such check: unloged-table: table public.t (expected one of" in capsys.readouterr().err


def test_unreachable_database_is_reported() -> None:
    status, output, errors = advise(UNREACHABLE)
    assert (status, output) == (os.EX_UNAVAILABLE, "")
    assert errors.startswith("project abcdefghijklmnopqrst: the database cannot be read: ")


def test_control_characters_of_names_are_escaped(database: Database) -> None:
    database.execute('create table "a\x1b[2J\nb" (id int); grant select on "a\x1b[2J\nb" to anon')
    output = advise(database.uri)[1]
    assert r"a\x1b[2J\nb" in output
    assert "\x1b" not in output


def test_only_roles_of_requests_are_considered(database: Database) -> None:
    name = f"other_{database.name}"
    database.execute(f"create role {name}; create table t (id int primary key); grant all on t to {name}")
    try:
        assert found(database.uri) == []
        database.execute(f"grant {name} to authenticator")
        assert [each["why"].split()[0] for each in found(database.uri)] == [name]
    finally:
        database.execute(f"drop owned by {name}; drop role {name}")


def test_superuser_as_login_role_reports_no_roles_of_postgresql(database: Database) -> None:
    database.execute("create table t (id int primary key); grant usage on schema public to public")
    assert found(database.admin_uri) == []


def test_anonymous_role_of_the_configuration_is_used(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(
        "create function f() returns int language sql security definer set search_path = '' as 'select 1';"
        "revoke execute on function f from public; grant execute on function f to authenticated"
    )
    assert found(database.uri) == []
    monkeypatch.setitem(KEY, "DATAAPI_PROJECT_DB_ANON_ROLE", "authenticated")
    assert [each["check"] for each in found(database.uri)] == ["definer-function-callable-by-anon"]
    monkeypatch.setitem(KEY, "DATAAPI_PROJECT_DB_ANON_ROLE", "")
    assert found(database.uri) == []


def test_fixes_in_the_guide_are_those_of_the_findings(server: Server, database: Database) -> None:
    """The first example of each section causes the finding, and the second example fixes it."""
    examples = {}
    for check in CHECKS:
        section = documents.blocks(documents.chapter(PAGE, check))
        assert {block.language for block in section} == {"sql"}, check
        examples[check] = [block.text.rstrip() for block in section]
    if server.version < 15:
        del examples["view-bypasses-policies"]
    faults = {check: texts for check, texts in examples.items() if len(texts) == 2}
    assert examples.keys() - faults.keys() == {"huge-table"}
    database.execute(examples.pop("policy-calls-function-per-row")[0])
    for fault, *_ in examples.values():
        database.execute(fault)
    findings = found(database.uri)
    for check, (_, fix) in faults.items():
        [finding] = [each for each in findings if (each["check"], each["fix"]) == (check, fix)]
        database.execute(fix)
        assert finding["object"] not in [
            each["object"] for each in found(database.uri) if each["check"] == check
        ]


def test_output_in_the_guide_is_that_of_its_example(database: Database) -> None:
    database.execute(documents.blocks(documents.chapter(PAGE, "table-without-row-security"))[0].text)
    [shown] = [block.text for block in documents.blocks(PAGE) if block.language == "text"]
    assert advise(database.uri) == (1, shown, "")


@pytest.mark.parametrize("block", [each for each in documents.blocks(PAGE) if each.language == "sh"])
def test_commands_in_the_guide_run(database: Database, tmp_path: Path, block: documents.Block) -> None:
    if "jq" in block.text and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    database.execute(OPEN)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", block.text], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={"PATH": path, "DATAAPI_PROJECT_DB_URI": database.uri, **KEY},
    )  # fmt: skip
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    assert "table public.note" in done.stdout
