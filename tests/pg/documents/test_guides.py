"""The guides' SQL, configurations and names are valid."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from dataapi.service.configuration import load
from dataapi.service.configuration.keys import PROJECT, SERVICE
from dataapi.testing import free_port
from support import documents

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres import Database

GUIDES = [name for name in documents.names() if name.startswith("docs/guides/")]
SECRETS = {
    "db-uri": "postgresql://authenticator@127.0.0.1/app",
    "jwt-secret": "a secret for this test, 32 characters or more",
    "publishable-keys": "sb_publishable_of_this_test",
    "secret-keys": "sb_secret_of_this_test",
}
DISTRIBUTED = documents.read("tests/scale/distribute.sql").splitlines()
"""Statements that need a Citus cluster; tests/scale runs them."""
NOTE = "create table note (id int primary key, owner text, body text);"


def _blocks(guide: str, language: str) -> list[str]:
    return [block.text for block in documents.blocks(documents.read(guide)) if block.language == language]


@pytest.mark.parametrize("guide", [guide for guide in GUIDES if _blocks(guide, "sql")])
def test_sql_of_guides_runs(guide: str, database: Database) -> None:
    database.execute(NOTE)
    for text in _blocks(guide, "sql"):
        if "create_distributed_table" in text:
            assert set(text.splitlines()) <= set(DISTRIBUTED)
        else:
            database.execute(text.replace("in database app ", f"in database {database.name} "))
    database.execute("alter role authenticator reset all")


@pytest.mark.parametrize("guide", [guide for guide in GUIDES if _blocks(guide, "ini")])
def test_configurations_of_guides_are_valid(guide: str, tmp_path: Path) -> None:
    for name, value in SECRETS.items():
        (tmp_path / name).write_text(value)
    for number, block in enumerate(_blocks(guide, "ini")):
        text = re.sub(r"@/[a-z./-]+/([a-z-]+)", rf"@{tmp_path}/\1", block)
        if not text.startswith("["):
            text = f"[project]\ndb-uri = {SECRETS['db-uri']}\n{text}"
        file = tmp_path / f"{number}.ini"
        file.write_text(text)
        assert load(file, {}).projects


def test_nginx_configuration_is_valid(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None or os.geteuid() != 0:
        pytest.skip("nginx is not installed, or cannot be tested without root")
    server = re.sub("    ssl_.*\n", "", documents.read("etc/nginx.conf")).replace(
        "443 ssl http2", f"127.0.0.1:{free_port()}"
    )
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n{server}\n}}\n")
    done = subprocess.run([nginx, "-t", "-c", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_settings_in_the_postgrest_guide_exist() -> None:
    text = documents.chapter(documents.read("docs/guides/from-postgrest.md"), "Keys")
    same_name, _, table = text.partition("| PostgREST |")
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", same_name))
    rows = re.findall(r"^\| .* \| (.*) \|$", table, re.MULTILINE)
    named |= {key for row in rows for key in re.findall(r"`([a-z-]+) = ", row)}
    assert len(named) > 8
    assert named <= PROJECT.keys() | SERVICE.keys()


@pytest.mark.parametrize("guide", GUIDES)
def test_error_codes_in_guides_exist(guide: str) -> None:
    known = documents.read("docs/reference/errors.md")
    for code in re.findall(r"\bPGRSTX?\d+", documents.read(guide)):
        assert f"| {code} |" in known, code
