"""The command line: examples, exit statuses and help texts."""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
from pathlib import Path

import dataapi.cli
import pytest
from dataapi.cli.examples import EXAMPLES, parsers
from dataapi.cli.main import command_line_parser
from dataapi.cli.status import STATUSES, status_of_sqlstate

PARSERS = dict(parsers("dataapi", command_line_parser()))
LINES = [(words, line) for words, lines in EXAMPLES.items() for line in lines]
PACKAGE = Path(str(dataapi.cli.__file__)).parents[1]


def test_every_command_has_one_to_three_examples() -> None:
    assert EXAMPLES.keys() == PARSERS.keys()
    for words, parser in PARSERS.items():
        assert 1 <= len(EXAMPLES[words]) <= 3
        assert parser.format_help().endswith("Examples:\n  " + "\n  ".join(EXAMPLES[words]) + "\n")


@pytest.mark.parametrize(("words", "line"), LINES, ids=[line for _, line in LINES])
def test_examples_parse(words: str, line: str) -> None:
    program, *arguments = shlex.split(re.split(r" (?:\| |> [a-z])", line)[0])
    assert program == "dataapi"
    assert line.startswith(f"{words} ") or line == words
    assert callable(command_line_parser().parse_args(arguments).subcommand)


@pytest.mark.parametrize("words", PARSERS)
def test_every_argument_has_help(words: str) -> None:
    for action in PARSERS[words]._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), action.dest


def test_exit_statuses_are_documented() -> None:
    """docs/reference/commands.md lists all exit statuses of the commands and the daemon."""
    files = [*(PACKAGE / "cli").glob("*.py"), PACKAGE / "tap.py", *(PACKAGE / "service").glob("*.py")]
    used = {
        getattr(os, node.attr)
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr.startswith("EX_")
    }
    assert used == {status for status in STATUSES if status != 1 and status < 128}


@pytest.mark.parametrize(
    ("sqlstate", "status"),
    [
        (None, os.EX_UNAVAILABLE),
        ("57P01", os.EX_UNAVAILABLE),
        ("40001", os.EX_TEMPFAIL),
        ("42501", os.EX_NOPERM),
        ("42P01", os.EX_DATAERR),
    ],
)
def test_postgresql_errors_have_exit_statuses(sqlstate: str | None, status: int) -> None:
    """The SQLSTATE's class determines the status. Errors without SQLSTATE mean an unavailable server."""
    assert status_of_sqlstate(sqlstate) == status
