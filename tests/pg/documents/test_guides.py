"""The guides: their SQL runs, their configurations can be used, and what they name is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from dataapi.service.configuration import load
from dataapi.service.configuration.keys import PROJECT, SERVICE
from support import documents
from support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres import Database

GUIDES = [name for name in documents.names() if name.startswith("docs/guides/")]
SECRETS = {
    "db-uri": "postgresql://authenticator@127.0.0.1/app",
    "jwt-secret": "a secret of this test, 32 characters and more",
    "publishable-keys": "sb_publishable_of_this_test",
    "secret-keys": "sb_secret_of_this_test",
}
DISTRIBUTED = documents.read("tests/scale/distribute.sql").splitlines()
"""What only a cluster runs, which the tests of tests/scale do."""
NOTE = "create table note (id int primary key, owner text, body text);"


def _blocks(guide: str, language: str) -> list[str]:
    return [block.text for block in documents.blocks(documents.read(guide)) if block.language == language]


@pytest.mark.parametrize("guide", [guide for guide in GUIDES if _blocks(guide, "sql")])
def test_the_sql_runs(guide: str, database: Database) -> None:
    database.execute(NOTE)
    for text in _blocks(guide, "sql"):
        if "create_distributed_table" in text:
            assert set(text.splitlines()) <= set(DISTRIBUTED)
        else:
            database.execute(text.replace("in database app ", f"in database {database.name} "))
    database.execute("alter role authenticator reset all")


@pytest.mark.parametrize("guide", [guide for guide in GUIDES if _blocks(guide, "ini")])
def test_the_configurations_are_good(guide: str, tmp_path: Path) -> None:
    for name, value in SECRETS.items():
        (tmp_path / name).write_text(value)
    for number, block in enumerate(_blocks(guide, "ini")):
        text = re.sub(r"@/[a-z./-]+/([a-z-]+)", rf"@{tmp_path}/\1", block)
        if not text.startswith("["):
            text = f"[project]\ndb-uri = {SECRETS['db-uri']}\n{text}"
        file = tmp_path / f"{number}.ini"
        file.write_text(text)
        assert load(file, {}).projects


def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None or os.geteuid() != 0:
        pytest.skip("nginx is not installed, or cannot be tried without root")
    server = re.sub("    ssl_.*\n", "", documents.read("etc/nginx.conf")).replace(
        "443 ssl http2", f"127.0.0.1:{free_port()}"
    )
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n{server}\n}}\n")
    done = subprocess.run([nginx, "-t", "-c", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_keys_of_postgrest_are_ours() -> None:
    """Each key that is said to have PostgREST's name, or to stand for one of its keys, exists."""
    text = documents.chapter(documents.read("docs/guides/from-postgrest.md"), "Keys")
    same, _, table = text.partition("| PostgREST |")
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", same))
    rows = re.findall(r"^\| .* \| (.*) \|$", table, re.MULTILINE)
    named |= {key for row in rows for key in re.findall(r"`([a-z-]+) = ", row)}
    assert len(named) > 8
    assert named <= PROJECT.keys() | SERVICE.keys()


@pytest.mark.parametrize("guide", GUIDES)
def test_error_codes_exist(guide: str) -> None:
    """Each code of PostgREST's kind is one that the service answers with."""
    known = documents.read("docs/reference/errors.md")
    for code in re.findall(r"\bPGRSTX?\d+", documents.read(guide)):
        assert f"| {code} |" in known, code
