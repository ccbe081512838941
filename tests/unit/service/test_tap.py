"""The options of ``twistd dataapi`` and what is built of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dataapi.service.root_service import RootService
from dataapi.tap import EXAMPLES, Options, makeService
from twisted.application.service import IService


def parsed(*words: str) -> Options:
    """Return the options of a command line."""
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
def test_the_folder_of_the_embedded_server_may_be_left_out(
    words: list[str], embedded: str | None, directory: Path | None
) -> None:
    """``--embedded`` stands alone or names a folder, before other options too."""
    options = parsed(*words)
    assert options["embedded"] == embedded
    assert options.directory == directory


@pytest.mark.parametrize("line", EXAMPLES)
def test_the_help_ends_with_examples_that_parse(line: str) -> None:
    _, words = line.split(" dataapi ")
    parsed(*words.split())
    assert Options().getUsage().endswith("Examples:\n  " + "\n  ".join(EXAMPLES) + "\n")


def test_options_win_over_the_configuration() -> None:
    options = parsed("--listen", "tcp:1", "-l", "unix:/x", "--workers", "auto", "--embedded")
    assert options.overrides == [
        ("dataapi", "listen", "tcp:1\nunix:/x"),
        ("dataapi", "workers", "auto"),
        ("project", "db-uri", "postgresql:///embedded"),
    ]
    assert parsed().overrides == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--wrokers", "2"), "option --wrokers not recognized"),
        (("stray",), "unexpected argument: stray"),
    ],
)
def test_unknown_options_are_refused(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == os.EX_USAGE
    printed = capsys.readouterr()
    assert printed == ("", f"dataapi: {sentence}; twistd dataapi --help shows the options\n")


def test_mistakes_of_the_configuration_end_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.ini").write_text("[dataapi]\nworkers = x\n[project]\nreff = y\n")
    with pytest.raises(SystemExit) as ended:
        makeService(parsed("--config", "x.ini"))
    assert ended.value.code == os.EX_CONFIG
    printed = capsys.readouterr().err
    assert all(key in printed for key in ("workers", "reff", "db-uri"))


def test_a_service_is_built_and_nothing_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.ini").write_text(
        "[project]\ndb-uri = postgresql://u@nowhere.invalid/d\nrequire-api-key = no\n"
    )
    service = makeService(parsed("--config", "x.ini"))
    assert isinstance(service, RootService)
    assert IService.providedBy(service)
    assert not service.running


LOADED_LATER = {
    "before the databases are asked": (
        "dataapi.tap",
        "graphql klein treq jsonschema prometheus_client dataapi.web.app dataapi.service.webhooks",
    ),
    "before requests are answered": (
        "dataapi.web.app",
        "treq jsonschema prometheus_client dataapi.service.webhooks",
    ),
}


@pytest.mark.parametrize(("module", "later"), LOADED_LATER.values(), ids=LOADED_LATER)
def test_a_start_imports_nothing_that_can_wait(module: str, later: str) -> None:
    script = f"import sys, {module}; print(*set({later.split()!r}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
