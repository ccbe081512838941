"""The subcommand ``advise``: its arguments and output."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from dataapi.advisor.checks import CHECKS, SchemaFinding, unknown_checks
from dataapi.cli.tables import printable

SUMMARY = "Report risks and performance problems in the schema."
_DESCRIPTION = (
    "Report risks and performance problems in the schema that the APIs expose, with SQL to fix them. "
    "The exit status is 1 if there are findings."
)


def add(subcommands: Any, common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subcommands.add_parser(
        "advise", parents=[common], help=SUMMARY, description=_DESCRIPTION
    )
    parser.add_argument("--project", metavar="REF", help="project (required if there are several)")
    parser.add_argument(
        "--format", choices=["text", "json"], default="text", help="format of the findings (default: text)"
    )
    parser.add_argument(
        "--ignore",
        metavar="CHECK",
        action="append",
        default=[],
        type=_ignored,
        help="check to ignore, or first line of a finding to ignore (repeatable)",
    )
    return parser


def _ignored(text: str) -> str:
    if unknown_checks([text]):
        raise argparse.ArgumentTypeError(f"no such check: {text} (expected one of {', '.join(CHECKS)})")
    return text


def lines(findings: Sequence[SchemaFinding], style: str) -> Iterator[str]:
    if style == "json":
        document = {"findings": [finding.as_json() for finding in findings]}
        yield json.dumps(document, indent=2, ensure_ascii=False)
        return
    for finding in findings:
        yield printable(finding.name)
        yield f"    {printable(finding.why)}"
        yield from (f"    {printable(line)}" for line in finding.fix.splitlines())
        yield f"    {finding.docs}"
        yield ""
    yield f"{len(findings)} finding{'s' if len(findings) != 1 else ''}"
