"""Writes the pages of docs/reference/ that list what the code has: ``make reference``.

A test compares the pages with what this module makes, so that neither can be forgotten.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dataapi.auth.authenticator import API_KEY_ERRORS
from dataapi.cli.examples import EXAMPLES, is_group, parsers, spelling
from dataapi.cli.main import command_line_parser
from dataapi.cli.status import STATUSES
from dataapi.plugins.platform_events import platform_events
from dataapi.rest.respond import KEY_MISMATCH, NOT_SINGLE, TOO_MANY, violated
from dataapi.service.configuration.keys import SECTIONS, ConfigurationKey
from dataapi.service.configuration.parsers import automatic
from dataapi.service.configuration.sources import variable_name
from dataapi.settings import Project, Settings, TransactionEnd, Webhooks
from dataapi.tap import EXAMPLES as DAEMON_EXAMPLES
from dataapi.tap import Options
from dataapi.telemetry.metrics import DURATIONS, FAMILIES
from dataapi.webhooks.delivery.headers import CONSTANT_HEADERS
from dataapi.webhooks.management.api import OPERATIONS
from dataapi.webhooks.management.errors import OTHER, ErrorCode
from dataapi.webhooks.management.operations import ORGANIZATION, ManagementOperation
from dataapi.webhooks.store.enqueue import PublishProblem

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "daemon" / "dataapi"
FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Written by docs/generate.py; `make reference` writes it again. -->"


def main() -> None:
    """Write the pages, and the template of the configuration."""
    (ROOT / "etc" / "dataapi.ini").write_text(template(), "utf-8")
    for name in makers():
        (FOLDER / name).write_text(page(name), "utf-8")


def makers() -> dict[str, Callable[[], Iterable[str]]]:
    """Return what makes the parts of each page by its name in docs/reference/."""
    return {
        "configuration.md": configuration,
        "commands.md": commands,
        "metrics.md": metrics,
        "errors.md": errors,
        "events.md": events,
        "management.md": management,
        "headers.md": headers,
    }


def page(name: str) -> str:
    """Return the text of a page."""
    return "\n\n".join([NOTE, *makers()[name]()]) + "\n"


# ---------------------------------------------------------------- Markdown


def plain(text: str) -> str:
    """Return a text in which Markdown sees no mark-up."""
    return re.sub(r"([\\`*<\[|]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def code(text: str) -> str:
    """Return a text as code, also within a table."""
    return f"`{text}`".replace("|", r"\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---------------------------------------------------------------- configuration


@dataclass(frozen=True)
class Described:
    """Keys that share a comment.

    :ivar keys: the name of each, and its value as text: the default, or an example if there is none.
    """

    comment: str
    keys: list[tuple[str, str]]
    is_example: bool
    is_required: bool


TEMPLATE = """\
; A template for the configuration of dataapi: every key with its default. "make reference" writes it.
; A key that begins with ";" has no default.
;
; "twistd dataapi" and "dataapi" read ./dataapi.ini, else /etc/dataapi/dataapi.ini, or the file of --config.
; "dataapi check-config" lists every mistake.
;
; Each key can also be set in the environment, which overrides this file: DATAAPI_<SECTION>_<KEY>, such as
; DATAAPI_PROJECT_DB_URI for db-uri in [project], and DATAAPI_PROJECT_ABCDEFGHIJKLMNOPQRST_DB_URI for
; db-uri in [project:abcdefghijklmnopqrst].
; A value of the form @/path is read from that file, without its last line end. Use it for secrets.
;
; A comment begins with ";" at the start of a line or after a space. Further lines of a value are indented.
; Lists are separated by commas or line ends. Switches are yes or no.
"""


def template() -> str:
    """Return the text of etc/dataapi.ini."""
    parts = [TEMPLATE]
    for section, (about, described) in sections().items():
        comment = "" if section == "dataapi" else f"\n{ini_comment(about)}"
        parts.append(f"{comment}[{section}]\n")
        for one in described:
            mark = "; " if one.is_example and not one.is_required else ""
            lines = "".join(f"{mark}{name} = {value}".rstrip() + "\n" for name, value in one.keys)
            parts.append(ini_comment(one.comment) + lines)
    return "\n".join(parts)


def ini_comment(text: str) -> str:
    """Return a text as lines of comment."""
    paragraphs = text.split("\n\n")
    fold = partial(textwrap.wrap, width=118, break_long_words=False, break_on_hyphens=False)
    return "".join(f"; {line}\n" for each in paragraphs for line in fold(each))


def sections() -> dict[str, tuple[str, list[Described]]]:
    """Return each section with what it is for and its keys, from the dataclasses of the settings."""
    kinds = {"dataapi": Settings, "project": Project, "webhooks": Webhooks}
    return {
        section: (
            re.sub(r"\n +", "\n", str(kind.__doc__).partition("\n\n    :ivar")[0]).strip(),
            list(described_keys(kind, SECTIONS[section])),
        )
        for section, kind in kinds.items()
    }


def described_keys(kind: type, keys: Mapping[str, ConfigurationKey]) -> Iterator[Described]:
    """Yield the keys of a section by comment: the lines that begin with ``#:`` before a field."""
    comment: list[str] = []
    for line in map(str.strip, inspect.getsource(kind).splitlines()):
        found = re.match(r"(\w+): ", line)
        name = found[1].replace("_", "-").replace("app-settings", "app.settings.*") if found else ""
        if line.startswith("#: "):
            comment.append(line.removeprefix("#: "))
        elif name in keys:
            key = keys[name]
            text = "auto" if key.parse is automatic else written(key.default)
            if comment:
                example = comment.pop() if comment[-1].startswith("Example: ") else ""
                text = example.removeprefix("Example: ") or text
                made = Described(" ".join(comment), [(name, text)], bool(example), key.default == "")
                comment = []
                yield made
            else:
                made.keys.append((name, text))


def written(value: object) -> str:
    """Return the default of a key as it is written in the configuration."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case TransactionEnd():
            return value.value
        case tuple() | frozenset():
            return ", ".join(map(written, value))
    return str(value)


def configuration() -> Iterator[str]:
    """Yield the page of the configuration's keys."""
    yield "# Configuration keys"
    yield (
        "`twistd dataapi` reads `./dataapi.ini`, else `/etc/dataapi/dataapi.ini`, or the file that "
        "`--config` names. `dataapi check-config` lists every mistake in it. "
        "[etc/dataapi.ini](../../etc/dataapi.ini) is the same list as a template."
    )
    yield (
        "The environment overrides the file: each key has a variable. In a section "
        "`[project:REF]` the variable contains the reference, too: "
        "`DATAAPI_PROJECT_ABCDEFGHIJKLMNOPQRST_DB_URI`. A value `@/path` is read from that file, without "
        "its last line end. Lists are separated by commas or line ends, switches are `yes` or `no`."
    )
    for section, (about, described) in sections().items():
        yield f"## [{section}]"
        if section != "dataapi":
            yield plain(about)
        for one in described:
            yield "### " + ", ".join(name for name, _ in one.keys)
            yield plain(one.comment)
            yield table(["Key", "Default", "Variable"], _rows(section, one))


def _rows(section: str, described: Described) -> Iterator[Sequence[str]]:
    for name, value in described.keys:
        default = code(value) if value else "empty"
        shown = f"none; for example {code(value)}" if described.is_example else default
        yield code(name), shown, code(variable_name(section, name))


# ---------------------------------------------------------------- commands


def commands() -> Iterator[str]:
    """Yield the page of the command lines, from what reads them."""
    yield "# Commands"
    yield "## twistd dataapi"
    yield (
        "Runs the daemon. Options of `twistd` itself go before `dataapi`: `twistd --nodaemon --pidfile= "
        "dataapi` stays in the foreground and writes no file."
    )
    options = [(f"`--{name}`", text) for name, _, text in Options.optFlags]
    options += [(f"`--{name} VALUE`", text) for name, _, _, text in Options.optParameters]
    for name in ("listen", "version"):
        value = " VALUE" if name == "listen" else ""
        options.append((f"`--{name}{value}`", str(getattr(Options, f"opt_{name}").__doc__)))
    yield table(["Option", "Meaning"], [(option, plain(text)) for option, text in sorted(options)])
    yield "\n".join(["```", *DAEMON_EXAMPLES, "```"])
    yield "## dataapi"
    yield (
        "The operator's commands. They read the same configuration as the daemon. Lists are columns on a "
        "terminal, with colours unless `NO_COLOR` is set, and lines of fields separated by tabs elsewhere."
    )
    yield (
        "Every command takes `--config FILE`. Without it the configuration is `./dataapi.ini`, else "
        "`/etc/dataapi/dataapi.ini`."
    )
    for words, parser in parsers("dataapi", command_line_parser()):
        if is_group(parser):
            continue
        yield f"### {words}"
        yield plain(parser.description or "")
        rows = [_option(action) for action in parser._actions if not _is_common(action)]
        if rows:
            yield table(["Argument", "Meaning"], rows)
        yield "\n".join(["```", *EXAMPLES[words], "```"])
    yield "## Exit statuses"
    yield (
        "Of both, as `sysexits.h` names them. Errors are a sentence on standard error. Detached, without "
        "`--nodaemon`, `twistd` itself says that the start failed, and exits with 1."
    )
    yield table(["Status", "Meaning"], [(str(status), text) for status, text in STATUSES.items()])


def _is_common(action: argparse.Action) -> bool:
    return action.dest == "help" or (action.dest == "config" and action.default is None)


def _option(action: argparse.Action) -> tuple[str, str]:
    """Return how an argument is written and what it means."""
    text = plain((action.help or "") % vars(action))
    return code(spelling(action)), f"{text} (required)" if action.option_strings and action.required else text


# ---------------------------------------------------------------- metrics


def metrics() -> Iterator[str]:
    """Yield the page of what ``/metrics`` has."""
    yield "# Metrics"
    yield (
        "`GET /metrics` on the admin listener answers in Prometheus's text format. Several workers are one"
        " answer: counters and histograms are sums, and gauges what their meaning asks for. The figures of"
        " the process (`process_…`) come from the Python client library of Prometheus."
    )
    rows = []
    for name, family in FAMILIES.items():
        kind = "histogram" if family.histogram else "counter" if name.endswith("_total") else "gauge"
        labels = ", ".join(map(code, family.labels)) or "none"
        rows.append((code(name), kind, labels, plain(family.help)))
    yield table(["Name", "Type", "Labels", "Meaning"], rows)
    bounds = ", ".join(f"{bound:g}" for bound in DURATIONS)
    yield f"The buckets of histograms end at {bounds} seconds."


# ---------------------------------------------------------------- errors


@dataclass
class Refusals:
    """What the code answers with one error code.

    :ivar others: whether there are messages that the source does not show beside the code.
    """

    statuses: set[int] = field(default_factory=set)
    messages: dict[str, None] = field(default_factory=dict)
    others: bool = False


_CODE = re.compile(r"PGRST(\d|X)\d\d|[A-Z]+(_[A-Z]+)+")
_STATUSES = {"_reject": 401, "_retry_after": 503}
"""Functions that raise with a status of their own."""


def errors() -> Iterator[str]:
    """Yield the page of error codes."""
    yield "# Error codes"
    yield (
        "Where to find the form of errors: [REST](rest.md#errors), [GraphQL](graphql.md#errors), "
        "[webhooks](../webhooks.md#errors). In messages, `…` stands for what depends on the request."
    )
    yield "## HTTP, REST, API keys and tokens"
    yield (
        "Errors of PostgreSQL itself have its SQLSTATE as their code; [SQLSTATEs](rest.md#sqlstates) says "
        "with which status. In GraphQL, tokens and connections fail with the same codes."
    )
    rows = []
    for name, refusals in sorted(_refusals().items()):
        statuses = ", ".join(map(str, sorted(refusals.statuses)))
        messages = [*map(plain, refusals.messages), *(["*says what is wrong*"] if refusals.others else [])]
        rows.append((name, statuses, "<br>".join(messages)))
    yield table(["Code", "Status", "Message"], rows)
    yield (
        "A request without a usable API key is answered 401 with `message` and `hint`, and the code in the"
        " header `Proxy-Status`."
    )
    yield table(["Code", "Message", "Hint"], [(code(name), *texts) for name, texts in API_KEY_ERRORS.items()])
    yield "## GraphQL"
    yield (
        "An error of PostgreSQL has its SQLSTATE in `extensions.code`. Documents that may not run have one"
        " of these codes there; errors of syntax and validation have none."
    )
    found = {text for text, _ in _strings("graphql") if re.fullmatch(r"(PERSISTED|EXPLAIN)_[A-Z_]+", text)}
    yield table(["Code", "Meaning"], [(code(name), GRAPHQL[name]) for name in sorted(found)])
    yield "## webhooks.publish"
    yield "The function raises these SQLSTATEs."
    yield table(["SQLSTATE", "Meaning"], [(each.value, PUBLISHING[each.name]) for each in PublishProblem])
    yield "## Management API"
    yield f"Any other status has the code `{OTHER}`."
    yield table(
        ["Status", "Code", "Meaning"], [(str(one.status), code(one.code), one.meaning) for one in ErrorCode]
    )


GRAPHQL = {
    "EXPLAIN_NOT_ALLOWED": "The request asks for plans, which are for `service_role` alone.",
    "PERSISTED_DOCUMENT_NOT_FOUND": "No stored document has this `documentId`.",
    "PERSISTED_DOCUMENT_REQUIRED": "Only stored documents may run (`graphql-documents-only`).",
    "PERSISTED_QUERY_NOT_FOUND": "No stored document has this hash; Apollo's clients then send the text.",
    "PERSISTED_QUERY_NOT_SUPPORTED": "There are no stored documents; Apollo's clients then send texts.",
}

PUBLISHING = {
    "MALFORMED": "The type, the payload or the idempotency key is malformed.",
    "NO_ORGANIZATION": "There is no such organization.",
    "NO_PROJECT": "There is no such project.",
    "OTHER_ORGANIZATION": "The project belongs to another organization.",
    "NOT_ALLOWED": "The organization is not on the early access allowlist.",
    "RESERVED_NAME": "The payload has `is_test`, which the service alone writes.",
}


def _refusals() -> dict[str, Refusals]:
    """Return what the code raises by its code: the statuses and messages that the source shows."""
    found: dict[str, Refusals] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for scope in ast.walk(tree):
            if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            texts = _assigned(tree.body) | _assigned(ast.walk(scope))
            for call in ast.walk(scope):
                if isinstance(call, ast.Call):
                    _note(call, texts, found)
    for reason in (KEY_MISMATCH, NOT_SINGLE, TOO_MANY):
        error = violated(reason, 2)
        found[reason] = Refusals({error.status}, {error.message: None})
    return found


def _note(call: ast.Call, texts: Mapping[str, str], found: dict[str, Refusals]) -> None:
    values = [each.value if isinstance(each, ast.Constant) else None for each in call.args]
    names = [each for each in values if isinstance(each, str) and _CODE.fullmatch(each)]
    raises = call.func.id if isinstance(call.func, ast.Name) else ""
    if len(names) != 1 or not (isinstance(values[0], int) or raises in _STATUSES):
        return
    refusals = found.setdefault(names[0], Refusals())
    refusals.statuses.add(values[0] if isinstance(values[0], int) else _STATUSES[raises])
    after = call.args[values.index(names[0]) + 1]
    message = texts.get(after.id) if isinstance(after, ast.Name) else _text(after)
    if message is None:
        refusals.others = True
    else:
        refusals.messages[message] = None


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return the variables of a scope that a text is assigned to."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = _text(node.value)
            if text is not None:
                found[node.targets[0].id] = text
    return found


def _text(node: ast.AST) -> str | None:
    """Return a string as it stands in the source, with ``…`` for what it takes in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _strings(*below: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield the strings in the source below a folder, each with its node."""
    for path in sorted(SOURCES.joinpath(*below).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value, node


# ---------------------------------------------------------------- events


def events() -> Iterator[str]:
    """Yield the page of the shipped catalogue."""
    yield "# Event types"
    yield (
        "The types that are shipped, each with an example of its payload. "
        "[Plugins](../webhooks.md#plugins) add others. `GET /v2/organizations/{slug}/webhooks/event-types`"
        " lists those of a running daemon. What every event has beside its payload is under [Event "
        "types](webhooks.md#event-types)."
    )
    for one in platform_events.event_types():
        yield f"## {one.type}"
        yield plain(one.description)
        yield f"```json\n{json.dumps(one.example, indent=2)}\n```"


# ---------------------------------------------------------------- management


def management() -> Iterator[str]:
    """Yield the page of the management API."""
    yield "# Management operations"
    yield (
        "All operations of the management API, with the permission of the token that each one needs. S is "
        "`organizations/{organization_slug}` or `projects/{project_ref}`. `GET /v2/openapi.json` describes "
        "bodies, responses and errors; [Management](webhooks.md#management) has the rules."
    )
    yield table(("Operation", "What it does", "Token", "Success"), map(_operation_row, OPERATIONS))


def _operation_row(operation: ManagementOperation) -> tuple[str, ...]:
    path = operation.paths[0].replace(ORGANIZATION, "/v2/S/webhooks")
    needed = "none" if operation.permission is None else code(operation.permission)
    if operation.operator or operation.allows_operator:
        needed = "an operator's" if operation.operator else f"{needed}, or an operator's"
    success = f"{operation.status}{' with `Location`' if operation.returns_location else ''}"
    return code(f"{operation.method} {path}"), plain(operation.summary), needed, success


# ---------------------------------------------------------------- headers


RESPONSES = {
    "Access-Control-Allow-Credentials": "to origins of `server-cors-allowed-origins`",
    "Access-Control-Allow-Headers": "in answers to preflights: the request headers that scripts may send",
    "Access-Control-Allow-Methods": "in answers to preflights: the methods of the path",
    "Access-Control-Allow-Origin": "`*`, or the request's origin if `server-cors-allowed-origins` names it",
    "Access-Control-Expose-Headers": "the response headers that scripts may read",
    "Access-Control-Max-Age": "in answers to preflights: for how many seconds they hold",
    "Allow": "the methods that the path takes, for `OPTIONS` and with status 405",
    "Cache-Control": "of the console: whether caches ask again",
    "Connection": "`close` if no further request is read from the connection",
    "Content-Encoding": "of the console's files: how they are compressed",
    "Content-Location": "the path and query of the rows that a REST read returned",
    "Content-Profile": "the schema that answered, if `db-schemas` has several",
    "Content-Range": "the rows in the body and their total, such as `0-24/573458`",
    "Content-Security-Policy": "of the console",
    "Content-Type": "the media type of the body",
    "Cross-Origin-Opener-Policy": "of the console",
    "Cross-Origin-Resource-Policy": "of the console",
    "Dataapi-LSN": "with `db-read-uri`, after a write: what a reader sends back to see it",
    "Date": "when the answer was made",
    "Location": "the inserted row (`Prefer: return=headers-only`), what else was made, or the console",
    "Preference-Applied": "the preferences of `Prefer` that were followed",
    "Proxy-Status": "`PostgREST; error=CODE` of REST, else `dataapi; error=CODE`: the code, also for `HEAD`",
    "Referrer-Policy": "of the console",
    "Retry-After": "after how many seconds to try again, with statuses 429, 503 and 504",
    "Server": "the name of the service",
    "Server-Timing": "how long each stage took, with `server-timing-enabled = yes`",
    "Transfer-Encoding": "`chunked` for streamed answers",
    "Vary": "the request headers that a cached answer depends on",
    "WWW-Authenticate": "`Bearer`, with status 401: what is wrong with the token",
    "Warning": "what in the request is deprecated ([Embedding](rest.md#embedding))",
    "X-Content-Type-Options": "of the console",
    "X-Frame-Options": "of the console: no page may frame it",
    "X-Accel-Buffering": "of live queries: nginx passes events on as they come",
    "X-Request-Id": "the request's id, as in the log: its own if it sent a valid one",
}


def headers() -> Iterator[str]:
    """Yield the page of the headers of responses and of deliveries."""
    yield "# Headers"
    yield "## Responses"
    yield (
        "What answers have besides `Content-Length` and what a function sets by `response.headers`. "
        "[REST](rest.md#headers) has the rules for those of rows."
    )
    found = {
        name
        for path in SOURCES.rglob("*.py")
        if path.name not in NO_RESPONSES
        for name in _header_names(path)
    }
    if found != RESPONSES.keys():
        raise ValueError(f"headers without a description, or the reverse: {found ^ RESPONSES.keys()}")
    rows = [(code(name), RESPONSES[name]) for name in sorted(RESPONSES)]
    yield table(
        ["Header", "Meaning"],
        [*rows, ("the one that `server-trace-header` names", "the request's own value")],
    )
    yield "## Deliveries"
    yield "What a webhook's receiver gets, beside the custom headers of its endpoint."
    yield table(["Header", "Meaning"], DELIVERIES)


NO_RESPONSES = ("published_keys.py", "openapi3.py", "swagger.py")
"""Modules that name headers which no answer has."""

DELIVERIES = [
    ("`webhook-id`", "the event's id, the same for every attempt"),
    ("`webhook-timestamp`", "when the attempt was made, in Unix seconds"),
    ("`webhook-signature`", "`v1,` and the signature in base64 ([Signing](webhooks.md#signing))"),
    (
        "`traceparent`",
        "the trace of the request that published the event ([Publishing](webhooks.md#publishing)); with "
        "[spans](../guides/monitoring.md#opentelemetry), the span of the attempt, in that trace or a new one",
    ),
    *((code(name), code(value)) for name, value in CONSTANT_HEADERS),
]


def _header_names(path: Path) -> Iterator[str]:
    """Yield the names of headers that a module sets: the first of two in a tuple."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            name = _text(node.elts[0])
            if name and re.fullmatch(
                "[A-Z][A-Za-z]*(-[A-Z][A-Za-z]+)+|Allow|Connection|Date|Location|Server|Vary|Warning", name
            ):
                yield name


if __name__ == "__main__":
    main()
