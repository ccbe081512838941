"""The files for contributors match the project: hooks, workflows, templates and the dev container."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from dataapi.cli.main import command_line_parser
from support import documents
from support.worked_change import steps

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


def hooks() -> dict[str, dict[str, Any]]:
    """Return the pre-commit hooks by ID."""
    [repository] = yaml.safe_load(documents.read(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local", "checks need no other repository"
    return {hook["id"]: hook for hook in repository["hooks"]}


def test_hooks_run_the_checks_of_make() -> None:
    makefile = documents.read("Makefile").replace("$(BIN)", ".venv/bin")
    found = hooks()
    for name in ("ruff", "ruff-format", "mypy"):
        assert f"{found[name]['entry']}" in makefile
    for word in shlex.split(found["texts"]["entry"]):
        assert not word.startswith("tests/") or (documents.ROOT / word).is_file(), word


def is_accepted(message: str) -> bool:
    """Return whether the pre-commit hook for commit messages accepts a message."""
    hook = hooks()["message"]
    assert hook["args"] == ["--multiline", "--negate"]
    return re.search(hook["entry"], message, re.MULTILINE | re.DOTALL) is not None


def test_documented_commit_messages_are_accepted() -> None:
    chapter = documents.chapter(documents.read("CONTRIBUTING.md"), "Commits")
    examples = [block.text for block in documents.blocks(chapter)]
    assert len(examples) > 2
    for message in [
        *examples,
        *(step.text for step in steps("docs/contributing/worked-change.md") if step.kind == "message"),
    ]:
        assert is_accepted(message), message


@pytest.mark.parametrize(
    "message",
    [
        "Add a filter\n\nIt was missing.\n",
        "rest: add a filter\n",
        "rest: add a filter\nIt was missing.\n",
        "rest: add a filter.\n\nIt was missing.\n",
        "rest: add a filter\n\n# Please enter the commit message\n",
        f"rest: add {'x' * 63}\n\nIt was missing.\n",
    ],
    ids=["no area", "no body", "no empty line", "period", "comment", "73 characters"],
)
def test_other_commit_messages_are_rejected(message: str) -> None:
    assert not is_accepted(message)


def test_workflow_only_runs_the_checks_of_any_machine() -> None:
    [job] = yaml.safe_load(documents.read(".github/workflows/ci.yml"))["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_bug_template_asks_for_everything_needed_to_reproduce() -> None:
    text = documents.read(".github/ISSUE_TEMPLATE/bug.md")
    head = yaml.safe_load(text.split("---\n")[1])
    assert head.keys() >= {"name", "about"}
    assert re.findall("^## (.*)$", text, re.MULTILINE) == ["SQL", "Request", "Expected", "Actual", "Version"]
    assert "`dataapi version`" in text
    assert command_line_parser().parse_args(["version"])


def test_dev_container_has_what_the_readme_requires() -> None:
    settings = json.loads(documents.read(".devcontainer/devcontainer.json"))
    assert settings["postCreateCommand"] == "make develop"
    image = documents.read(f".devcontainer/{settings['build']['dockerfile']}")
    assert {"git", "make", "python3", "python3-venv", "postgresql"} <= set(image.split())
    assert settings["remoteUser"] in image


def test_first_issues_name_existing_files_and_missing_features() -> None:
    page = documents.read("docs/contributing/first-issues.md")
    issues = [documents.chapter(page, title) for title in re.findall("^## (.*)$", page, re.MULTILINE)]
    assert issues
    for issue in issues:
        labels = re.findall(r"^- ([\w ]+): ", issue, re.MULTILINE)
        assert labels == ["Start with", "Test", "Done", "Missing"], issue
        for path in re.findall(r"`((?:daemon|docs|tests|etc)/[\w./-]*)`", issue):
            assert (documents.ROOT / path).exists(), path
        [(missing, file)] = re.findall(r"Missing: `(.+)` in `(.+)`$", issue, re.MULTILINE)
        assert missing not in documents.read(file), f"{missing} exists: remove the issue from the page"
