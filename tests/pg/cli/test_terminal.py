"""Lists printed to terminals and to pipes, and errors when output cannot be written."""

from __future__ import annotations

import io
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dataapi.cli.main import run
from support.daemon import DATAAPI, environment
from support.terminal import Terminal, at_terminal
from support.webhooks import KEY, allow_migrations

if TYPE_CHECKING:
    from support.postgres import Database, Server

COLOUR = re.compile(r"\x1b\[\d+m")


@pytest.fixture(scope="module")
def database(server: Server) -> Database:
    """Return a database in which the webhooks schema may be created."""
    created = server.create_database()
    allow_migrations(created)
    return created


@pytest.fixture(scope="module")
def environ(database: Database) -> dict[str, str]:
    """Return the environment of commands for a database with two organizations."""
    environ = environment(
        {
            "DATAAPI_PROJECT_DB_URI": database.uri,
            "DATAAPI_PROJECT_REQUIRE_API_KEY": "no",
            "DATAAPI_WEBHOOKS_DB_URI": database.uri,
            "DATAAPI_WEBHOOKS_ENCRYPTION_KEY": KEY,
            "NO_COLOR": "",
        }
    )
    run_here(environ, "organization", "create", "acme")
    run_here(environ, "organization", "create", "globex-industries", "--early-access")
    return environ


def run_here(environ: dict[str, str], *words: str) -> None:
    """Run a command in this process."""
    assert run(words, environ, io.StringIO(), io.StringIO()) == 0


def test_list_has_headings_and_colours_on_a_terminal(environ: dict[str, str], tmp_path: Path) -> None:
    command = [*DATAAPI, "organization", "list"]
    status, output = at_terminal(command, cwd=tmp_path, environ=environ)
    assert status == 0
    assert COLOUR.sub("", output).splitlines() == [
        "ORGANIZATION       ALLOWED",
        "acme               -",
        "globex-industries  early-access",
    ]
    assert "\x1b[1mORGANIZATION" in output
    assert "\x1b[32mearly-access\x1b[0m" in output


@pytest.mark.parametrize("disabled", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(environ: dict[str, str], tmp_path: Path, disabled: dict[str, str]) -> None:
    command = [*DATAAPI, "organization", "list"]
    _, output = at_terminal(command, cwd=tmp_path, environ={**environ, **disabled})
    assert "\x1b" not in output
    assert output.startswith("ORGANIZATION       ALLOWED\n")


def test_programs_get_fields_separated_by_tabs(environ: dict[str, str]) -> None:
    done = subprocess.run(
        [*DATAAPI, "organization", "list"],
        env={**environ, "TERM": "xterm", "FORCE_COLOR": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "acme\t-\nglobex-industries\tearly-access\n"


def test_lists_of_tokens_and_watches_show_their_state(
    environ: dict[str, str], database: Database, tmp_path: Path
) -> None:
    run_here(environ, "token", "create", "--organization", "acme")
    _, output = at_terminal([*DATAAPI, "token", "list"], cwd=tmp_path, environ=environ)
    head, token = output.splitlines()
    assert COLOUR.sub("", head).split() == ["ID", "ORGANIZATION", "PERMISSIONS", "EXPIRES", "STATE"]
    assert token.endswith("\x1b[32musable\x1b[0m")
    database.execute("create table item (name text)")
    watch = ["webhooks", "watch", "item", "v1.shop.item", "--operations", "insert"]
    watch += ["--when", "new.name <> '\x1b[2J'", "--organization", "acme", "--owner-uri", database.admin_uri]
    row_types = {**environ, "DATAAPI_WEBHOOKS_ROW_CHANGE_TYPES": "v1.shop.item"}
    run_here(row_types, *watch)
    _, output = at_terminal([*DATAAPI, "webhooks", "watches"], cwd=tmp_path, environ=row_types)
    assert "OPERATIONS" in output
    assert r"new.name <> '\x1b[2J'" in COLOUR.sub("", output)


def test_findings_are_a_table_on_a_terminal(environ: dict[str, str], tmp_path: Path) -> None:
    wrong_role = {**environ, "DATAAPI_PROJECT_DB_ANON_ROLE": "nobody_at_all"}
    status, output = at_terminal([*DATAAPI, "check-config"], cwd=tmp_path, environ=wrong_role)
    assert status == os.EX_CONFIG
    head, first = COLOUR.sub("", output).splitlines()[:2]
    assert head.split() == ["SEVERITY", "PROJECT", "FINDING"]
    assert first.startswith("mistake   abcdefghijklmnopqrst  requests run as nobody_at_all, but")
    assert "\x1b[31mmistake" in output


def test_output_error_is_reported(tmp_path: Path) -> None:
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


def test_prompt_can_be_interrupted(tmp_path: Path) -> None:
    with Terminal([*DATAAPI, "init"], cwd=tmp_path, environ=environment()) as terminal:
        terminal.read_to("PostgreSQL URI of an administrator: ")
        os.killpg(terminal.process.pid, 2)
        assert "Traceback" not in terminal.read_all()
        assert terminal.process.returncode == 130
