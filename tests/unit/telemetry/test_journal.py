"""Logging to systemd's journal: entries with fields, or (as a fallback) lines with priorities."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest
from dataapi.telemetry.journal import as_entry, is_journal, with_priority
from dataapi.telemetry.log_record import LogRecord
from dataapi.telemetry.logs import LineObserver, Redactor, as_text, to_journal


@pytest.mark.parametrize(
    ("level", "priority"), [("critical", 2), ("error", 3), ("warn", 4), ("info", 6), ("debug", 7)]
)
def test_every_line_of_a_record_has_a_priority(level: str, priority: int) -> None:
    text = with_priority(as_text)(LogRecord(0.5, level, "dataapi.x", "bad", traceback="Traceback\nboom"))
    assert [line[:3] for line in text.splitlines()] == [f"<{priority}>"] * 3


def test_journal_stream_is_recognized_by_the_environment() -> None:
    with tempfile.TemporaryFile() as journal, Path("/dev/null").open("rb") as null:
        status = Path(f"/proc/self/fd/{journal.fileno()}").stat()
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert is_journal(journal.fileno(), environ)
        assert not is_journal(null.fileno(), environ)
        assert not is_journal(journal.fileno(), {})
        assert not is_journal(journal.fileno(), {"JOURNAL_STREAM": "nonsense"})


def _parse(entry: bytes) -> dict[str, str]:
    """Parse an entry of the journal's native protocol, as documented by systemd."""
    fields = {}
    while entry:
        line, _, entry = entry.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(entry[:8], "little")
            value, entry = entry[8 : 8 + size], entry[8 + size + 1 :]
        fields[name.decode()] = value.decode()
    return fields


def test_record_is_a_message_with_fields() -> None:
    record = LogRecord(
        0.5, "warn", "dataapi.requests", "GET /rest/v1/x 404", "r1",
        {"status": 404, "path": "/rest/v1/x", "a-b c": ["é"], "empty": "", "lines": "1\nMESSAGE=forged"},
    )  # fmt: skip
    assert _parse(as_entry(record)) == {
        "MESSAGE": "GET /rest/v1/x 404",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "dataapi",
        "DATAAPI_LOGGER": "dataapi.requests",
        "DATAAPI_REQUEST_ID": "r1",
        "DATAAPI_STATUS": "404",
        "DATAAPI_PATH": "/rest/v1/x",
        "DATAAPI_A_B_C": '["é"]',
        "DATAAPI_LINES": "1\nMESSAGE=forged",
    }


def test_traceback_is_part_of_the_message() -> None:
    record = LogRecord(0.5, "error", "dataapi.x", "bad", traceback="Traceback\nboom")
    assert _parse(as_entry(record))["MESSAGE"] == "bad\nTraceback\nboom"


def test_records_that_the_journal_rejects_become_lines(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")
    lines: list[str] = []
    observer = LineObserver(lines.append, with_priority(as_text), Redactor(), send=to_journal(address))
    observer.put(LogRecord(0.5, "info", "dataapi.x", "no socket"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(address)
        observer.put(LogRecord(0.5, "info", "dataapi.x", "taken"))
        observer.put(LogRecord(0.5, "warn", "dataapi.x", "large" * 1_000_000))
        assert _parse(journal.recv(65536))["MESSAGE"] == "taken"
    assert [line[:3] for line in lines] == ["<6>", "<4>"]
    assert "no socket" in lines[0]
