"""The SQL and the files of ``dataapi init``, as text."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from dataapi.service.provisioning import (
    Provision,
    RoleAccess,
    Secrets,
    configuration_files,
    parse_access,
    scram_verifier,
    setup_sql,
)

NOTHING = {"anon": RoleAccess(), "authenticated": RoleAccess()}


def test_a_password_is_stored_as_postgresql_stores_it() -> None:
    """The example of RFC 7677 section 3: password pencil, its salt and 4096 iterations."""
    verifier = scram_verifier("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    assert verifier == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
        ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )


@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("nothing", RoleAccess()),
        ("read", RoleAccess(everything=True)),
        ("blog, app.post", RoleAccess(tables=("blog", "app.post"))),
    ],
)
def test_access_is_nothing_everything_or_tables(text: str, access: RoleAccess) -> None:
    assert parse_access(text) == access


def test_names_are_quoted() -> None:
    """A table of any name, of the first schema unless another one is named."""
    access = {"anon": RoleAccess(tables=('a"b', "Other.c"))}
    sql = setup_sql(Provision(("My app",), access))
    assert 'grant select on table "My app"."a""b" to anon;' in sql
    assert 'grant select on table "Other"."c" to anon;' in sql


def test_only_what_was_chosen_is_created() -> None:
    bare = setup_sql(Provision(("public",), NOTHING, event_trigger=False))
    assert "event trigger" not in bare
    assert "create schema" not in bare
    assert "password" not in bare


def test_secrets_are_in_files_beside_the_configuration(tmp_path: Path) -> None:
    secrets = Secrets({"db-uri": "postgresql://x"}, {"encryption-key": "k"})
    provision = Provision(("app", "public"), NOTHING, webhooks=True)
    files = configuration_files(provision, secrets, tmp_path / "my.ini")
    folder = tmp_path / "my.secrets"
    assert files == {
        tmp_path / "my.ini": (
            f"[project]\ndb-uri = @{folder}/db-uri\ndb-schemas = app, public\n\n"
            f"[webhooks]\nencryption-key = @{folder}/encryption-key\n"
        ),
        folder / "db-uri": "postgresql://x\n",
        folder / "encryption-key": "k\n",
    }
