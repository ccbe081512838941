"""The options of ``twistd dataapi`` and the service created from them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dataapi.service.root_service import RootService
from dataapi.tap import EXAMPLES, Options, makeService
from support.daemon import JWT_SECRET
from support.start import NEEDED_LATER
from twisted.application.service import IService

PLUGINS = Path(__file__).parents[3] / "twisted" / "plugins"


@pytest.fixture(autouse=True)
def collections() -> Iterator[None]:
    """Enable garbage collection after a test: ``makeService`` disables it until the daemon serves."""
    yield
    gc.enable()


def parse(*words: str) -> Options:
    options = Options()
    options.parseOptions(list(words))
    return options


@pytest.mark.parametrize(
    ("words", "embedded", "directory"),
    [
        ([], None, None),
        (["--embedded"], "", None),
        (["--embedded", "/srv/data"], "/srv/data", Path("/srv/data")),
        (["--embedded=/srv/data"], "/srv/data", Path("/srv/data")),
        (["--embedded", "--workers", "2"], "", None),
    ],
)
def test_directory_of_embedded_is_optional(
    words: list[str], embedded: str | None, directory: Path | None
) -> None:
    options = parse(*words)
    assert options["embedded"] == embedded
    assert options.directory == directory


@pytest.mark.parametrize("line", EXAMPLES)
def test_help_ends_with_valid_examples(line: str) -> None:
    _, words = line.split(" dataapi ")
    parse(*words.split())
    assert Options().getUsage().endswith("Examples:\n  " + "\n  ".join(EXAMPLES) + "\n")


def test_options_override_the_configuration() -> None:
    options = parse("--listen", "tcp:1", "-l", "unix:/x", "--workers", "auto", "--embedded")
    assert options.overrides == [
        ("dataapi", "listen", "tcp:1\nunix:/x"),
        ("dataapi", "workers", "auto"),
        ("project", "db-uri", "postgresql:///embedded"),
    ]
    assert parse().overrides == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--wrokers", "2"), "option --wrokers not recognized"),
        (("stray",), "unexpected argument: stray"),
    ],
)
def test_unknown_options_are_rejected(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        parse(*words)
    assert exit_info.value.code == os.EX_USAGE
    printed = capsys.readouterr()
    assert printed == ("", f"dataapi: {message}; twistd dataapi --help shows the options\n")


def test_configuration_errors_end_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.ini").write_text("[dataapi]\nworkers = x\n[project]\nreff = y\n")
    with pytest.raises(SystemExit) as exit_info:
        makeService(parse("--config", "x.ini"))
    assert exit_info.value.code == os.EX_CONFIG
    printed = capsys.readouterr().err
    assert all(key in printed for key in ("workers", "reff", "db-uri"))


def test_service_is_created_but_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.ini").write_text(
        "[project]\ndb-uri = postgresql://u@nowhere.invalid/d\nrequire-api-key = no\n"
    )
    service = makeService(parse("--config", "x.ini"))
    assert isinstance(service, RootService)
    assert IService.providedBy(service)
    assert not service.running


CREATING = """
import sys
from dataapi_plugin import dataapi
options = dataapi.options()
options.parseOptions(["--config", "x.ini"])
dataapi.makeService(options)
print("dataapi.web.app" in sys.modules)
import dataapi.web.app
print(*set(sys.argv[1:]) & set(sys.modules))
"""
"""Creates the service. Then imports the web part, as the daemon does while it waits for the catalog."""


def test_modules_are_not_imported_before_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.ini").write_text(f"[project]\ndb-uri = postgresql:///d\njwt-secret = {JWT_SECRET}\n")
    monkeypatch.setenv("PYTHONPATH", str(PLUGINS))
    command = [sys.executable, "-c", CREATING, *NEEDED_LATER]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n\n"
