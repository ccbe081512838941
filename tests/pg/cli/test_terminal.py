"""Lists at a terminal, and for programs; and what becomes of output that nobody takes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon import DATAAPI, environment
from support.terminal import Terminal, at_terminal
from support.webhooks import KEY, allow_migrations

if TYPE_CHECKING:
    from support.postgres import Database

COLOUR = re.compile(r"\x1b\[\d+m")


@pytest.fixture
def environ(database: Database) -> dict[str, str]:
    """Configure the commands for a database with two organizations."""
    allow_migrations(database)
    environ = environment(
        {
            "DATAAPI_PROJECT_DB_URI": database.uri,
            "DATAAPI_PROJECT_REQUIRE_API_KEY": "no",
            "DATAAPI_WEBHOOKS_DB_URI": database.uri,
            "DATAAPI_WEBHOOKS_ENCRYPTION_KEY": KEY,
            "NO_COLOR": "",
        }
    )
    for words in (["acme"], ["globex-industries", "--early-access"]):
        subprocess.run([*DATAAPI, "organization", "create", *words], env=environ, check=True)
    return environ


def test_a_list_has_columns_with_names_and_colours_at_a_terminal(
    environ: dict[str, str], tmp_path: Path
) -> None:
    words = [*DATAAPI, "organization", "list"]
    status, shown = at_terminal(words, cwd=tmp_path, environ=environ)
    assert status == 0
    assert COLOUR.sub("", shown).splitlines() == [
        "ORGANIZATION       ALLOWED",
        "acme               -",
        "globex-industries  early-access",
    ]
    assert "\x1b[1mORGANIZATION" in shown
    assert "\x1b[32mearly-access\x1b[0m" in shown


@pytest.mark.parametrize("without", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(environ: dict[str, str], tmp_path: Path, without: dict[str, str]) -> None:
    words = [*DATAAPI, "organization", "list"]
    _, shown = at_terminal(words, cwd=tmp_path, environ={**environ, **without})
    assert "\x1b" not in shown
    assert shown.startswith("ORGANIZATION       ALLOWED\n")


def test_programs_get_fields_separated_by_tabs(environ: dict[str, str]) -> None:
    done = subprocess.run(
        [*DATAAPI, "organization", "list"],
        env={**environ, "TERM": "xterm", "FORCE_COLOR": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "acme\t-\nglobex-industries\tearly-access\n"


def test_tokens_and_watches_say_how_they_stand(
    environ: dict[str, str], database: Database, tmp_path: Path
) -> None:
    create = [*DATAAPI, "token", "create", "--organization", "acme"]
    subprocess.run(create, env=environ, check=True, capture_output=True)
    _, shown = at_terminal([*DATAAPI, "token", "list"], cwd=tmp_path, environ=environ)
    head, token = shown.splitlines()
    assert COLOUR.sub("", head).split() == ["ID", "ORGANIZATION", "PERMISSIONS", "EXPIRES", "STATE"]
    assert token.endswith("\x1b[32musable\x1b[0m")
    database.execute("create table item (name text)")
    watch = [
        "webhooks",
        "watch",
        "item",
        "v1.shop.item",
        "--operations",
        "insert",
        "--when",
        "new.name <> '\x1b[2J'",
    ]
    row_types = {**environ, "DATAAPI_WEBHOOKS_ROW_CHANGE_TYPES": "v1.shop.item"}
    command = [*DATAAPI, *watch, "--organization", "acme", "--owner-uri", database.admin_uri]
    subprocess.run(command, env=row_types, check=True)
    _, shown = at_terminal([*DATAAPI, "webhooks", "watches"], cwd=tmp_path, environ=row_types)
    assert "OPERATIONS" in shown
    assert r"new.name <> '\x1b[2J'" in COLOUR.sub("", shown)


def test_findings_are_a_table_at_a_terminal(environ: dict[str, str], tmp_path: Path) -> None:
    lacking = {**environ, "DATAAPI_PROJECT_DB_ANON_ROLE": "nobody_at_all"}
    status, shown = at_terminal([*DATAAPI, "check-config"], cwd=tmp_path, environ=lacking)
    assert status == os.EX_CONFIG
    head, first = COLOUR.sub("", shown).splitlines()[:2]
    assert head.split() == ["SEVERITY", "PROJECT", "FINDING"]
    assert first.startswith("mistake   abcdefghijklmnopqrst  requests run as nobody_at_all, but")
    assert "\x1b[31mmistake" in shown


def test_output_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    keys = [*DATAAPI, "keys"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            keys, cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == os.EX_IOERR
    assert done.stderr == "dataapi: the output cannot be written: No space left on device\n"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        keys, cwd=tmp_path, env=environment(), stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (os.EX_IOERR, "")


def test_a_question_can_be_interrupted(tmp_path: Path) -> None:
    with Terminal([*DATAAPI, "init"], cwd=tmp_path, environ=environment()) as terminal:
        terminal.read_to("PostgreSQL URI of an administrator: ")
        os.killpg(terminal.process.pid, 2)
        assert "Traceback" not in terminal.read_all()
        assert terminal.process.returncode == 130
