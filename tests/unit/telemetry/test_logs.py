"""Log lines: their format, omitted messages and redacted secrets."""

from __future__ import annotations

import json
import logging
import os
import re
from typing import Any

import pytest
from dataapi.settings import Project, Settings
from dataapi.telemetry.log_record import LogRecord
from dataapi.telemetry.logs import (
    FORMATS,
    LineObserver,
    Redactor,
    StandardHandler,
    as_json,
    as_text,
    line_observer,
    request_id,
    to_descriptor,
)
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import Logger, LogLevel, LogPublisher
from twisted.python.failure import Failure


class Log:
    """A logger that records its lines."""

    def __init__(self, form: str = "json", redact: Redactor | None = None, *, debug: bool = False) -> None:
        self.lines: list[str] = []
        self.observer = LineObserver(self.lines.append, FORMATS[form], redact or Redactor(), debug=debug)
        publisher = LogPublisher(self.observer)
        self.logger = Logger(namespace="dataapi.test", observer=publisher)
        self.twisted = Logger(namespace="twisted.internet.tcp", observer=publisher)

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The lines, parsed as JSON."""
        return [json.loads(line) for line in self.lines]


def test_line_is_one_json_object() -> None:
    log = Log()
    log.logger.warn("{table} is odd", table="blog", rows=3, names=("a", "b"), oid=None)
    [document] = log.documents
    assert log.lines[0].endswith("}\n")
    assert log.lines[0].count("\n") == 1
    assert document.pop("ts")[-1] == "Z"
    assert document == {
        "level": "warn", "logger": "dataapi.test", "message": "blog is odd",
        "table": "blog", "rows": 3, "names": ["a", "b"], "oid": None,
    }  # fmt: skip


def test_line_contains_the_id_of_the_current_request() -> None:
    log = Log()
    token = request_id.set("r-17")
    log.logger.info("inside")
    request_id.reset(token)
    log.logger.info("outside")
    assert [document.get("request_id") for document in log.documents] == ["r-17", None]


def test_traceback_is_a_field_of_the_same_line() -> None:
    log = Log()
    try:
        raise LookupError("no such thing")
    except LookupError:
        log.logger.failure("it broke")
    [document] = log.documents
    assert document["level"] == "critical"
    assert document["message"] == "it broke"
    assert "LookupError: no such thing" in document["traceback"]


def test_text_format_is_readable() -> None:
    record = LogRecord(0.5, "error", "dataapi.x", "bad\nnews", "r-1", {"n": 1}, "Traceback\nboom")
    assert as_text(record) == (
        "1970-01-01T00:00:00.500Z ERROR dataapi.x bad\\nnews request_id=r-1 n=1\n    Traceback\n    boom\n"
    )


@given(
    st.sampled_from(["text", "json"]),
    st.text(st.characters() | st.sampled_from("\x1b\x07\r\n\x7f\x9b\u2028\u202e\ud800")),
)
def test_lines_contain_no_terminal_control_characters(form: str, text: str) -> None:
    record = LogRecord(0.5, "warn", "dataapi.x", text, text, {"n": text, "l": [text]}, f"Traceback\n{text}")
    output = FORMATS[form](record)
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", output) is None
    if form == "json":
        assert output.count("\n") == 1
        assert json.loads(output)["message"] == text
    else:
        assert all(line.startswith(("1970", "    ")) for line in output.splitlines())


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("postgresql://app:hunter22@db/app", "postgresql://app:***@db/app"),
        ("host=db password=hunter22 user=x", "host=db password=*** user=x"),
        ("password='hun ter22'", "password=***"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("{'authorization': 'Bearer abc.def', 'x': 'y'}", "{'authorization': ***, 'x': 'y'}"),
        ("got bearer abcdef123", "got bearer ***"),
        ("/rest/v1/t?apikey=abc&select=a", "/rest/v1/t?apikey=***&select=a"),
        ('{"apikey": "s3cr3t"}', '{"apikey": ***}'),
        ("token eyJhbGciOiJI.eyJyb2xlIjoi.c2ln", "token ***"),
        ("key sb_secret_abc123 used", "key *** used"),
        ("the keyword bears no token", "the keyword bears no token"),
    ],
)
def test_secrets_are_redacted_by_their_form(text: str, output: str) -> None:
    assert Redactor()(text) == output


@given(st.text(min_size=6).filter(lambda text: "*" not in text), st.text(), st.text())
def test_configured_secrets_never_appear(secret: str, before: str, after: str) -> None:
    log = Log(redact=Redactor.for_secrets([secret]))
    text = before + secret + after
    log.logger.info("{text}", text=text, nested={"deep": [text]}, thing=text)
    [document] = log.documents
    for output in (document["message"], document["thing"], document["nested"]["deep"][0]):
        assert secret not in output


def test_secrets_of_the_settings_are_redacted() -> None:
    project = Project(
        "a" * 20, "acme", "postgresql://u:pass%20word@h/d", jwt_secret="j" * 32, secret_keys=("sesame-open",)
    )
    lines: list[str] = []
    observer = line_observer(Settings(projects=(project,)), lines.append)
    Logger(namespace="x", observer=LogPublisher(observer)).info(
        "a {jwt} b {key} c {password}", jwt="j" * 32, key="sesame-open", password="pass%20word"
    )
    assert json.loads(lines[0])["message"] == "a *** b *** c ***"


def test_secrets_in_tracebacks_are_redacted() -> None:
    log = Log()
    log.logger.failure("no", Failure(ValueError("postgresql://u:hunter22@h/d")))
    assert "hunter22" not in log.lines[0]


def test_twisteds_informational_messages_are_omitted() -> None:
    log = Log()
    log.twisted.info("Starting factory")
    log.logger.debug("detail")
    log.twisted.warn("odd")
    assert [document["message"] for document in log.documents] == ["odd"]
    verbose = Log(debug=True)
    verbose.twisted.info("Starting factory")
    verbose.logger.debug("detail")
    assert len(verbose.lines) == 2


def test_records_of_standard_logging_have_the_same_format() -> None:
    log = Log()
    handler = StandardHandler(log.observer)
    library = logging.Logger("library")
    library.addHandler(handler)
    library.info("not this")
    try:
        raise OSError("gone")
    except OSError:
        library.exception("odd {brace} %s", 7)
    [document] = log.documents
    assert (document["level"], document["logger"], document["message"]) == (
        "error",
        "library",
        "odd {brace} 7",
    )
    assert "OSError: gone" in document["exception"]


def test_line_contains_process_fields_and_repr_of_other_values() -> None:
    lines: list[str] = []
    observer = line_observer(Settings(projects=()), lines.append, worker=2)
    Logger(namespace="x", observer=LogPublisher(observer)).info(
        "hello", level_is=LogLevel.info, logger="mine"
    )
    document = json.loads(lines[0])
    assert document["worker"] == 2
    assert document["logger"] == "x"
    assert "info" in document["level_is"]


def test_lone_surrogates_are_logged() -> None:
    reader, writer = os.pipe()
    to_descriptor(writer)(as_json(LogRecord(0, "info", "x", "a\udc80b")))
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        assert json.loads(stream.read())["message"] == "a\udc80b"
