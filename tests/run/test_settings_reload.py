"""Reload of the configuration under load: keys, limits, projects, and invalid settings."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon import DATAAPI, KEY, QUICK, Daemon, execute, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database

NEW_KEY = "sb_publishable_of_tomorrow"


@pytest.fixture(scope="module", params=["1", "2"])
def running(
    served: Database, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Daemon]:
    """Yield a daemon with one or two workers that logs every request."""
    settings = {"workers": request.param, "log-level": "info"}
    with Daemon(tmp_path_factory.mktemp("reload"), served.uri, settings=settings) as made:
        made.wait_ready()
        yield made


@pytest.fixture
def daemon(running: Daemon) -> Iterator[Daemon]:
    """Yield the daemon with an empty log and restore its configuration after the test."""
    before = running.config.read_text()
    running.output.write_text("")
    yield running
    running.config.write_text(before)
    assert running.admin("POST", "/reload").status == 200


def rewrite(daemon: Daemon, old: str, new: str) -> None:
    """Replace text in the configuration file."""
    text = daemon.config.read_text()
    assert old in text
    daemon.config.write_text(text.replace(old, new))


def reloads(daemon: Daemon) -> int:
    """Return the number of reloads in the log."""
    return sum("reloaded on" in line["message"] for line in daemon.lines)


class Caller(threading.Thread):
    """A thread that sends requests with an API key.

    :ivar statuses: the statuses of the responses so far.
    """

    def __init__(self, daemon: Daemon, key: str) -> None:
        super().__init__(daemon=True)
        self.statuses: list[int] = []
        self._daemon, self._key = daemon, key
        self._ended = threading.Event()

    def run(self) -> None:
        """Send requests until ``end`` is called."""
        while not self._ended.is_set():
            self.statuses.append(self._daemon.graphql(QUICK, self._key).status)

    def end(self) -> set[int]:
        """Stop sending requests and return all statuses."""
        self._ended.set()
        self.join()
        return set(self.statuses)

    def more(self) -> None:
        """Wait for several more responses."""
        count = len(self.statuses)
        wait_for(lambda: len(self.statuses) > count + 5, "answers")


def test_key_rotation_rejects_no_requests(daemon: Daemon) -> None:
    old = Caller(daemon, KEY)
    old.start()
    assert daemon.graphql(QUICK, NEW_KEY).status == 401
    rewrite(daemon, f"publishable-keys = {KEY}", f"publishable-keys = {KEY}, {NEW_KEY}")
    assert daemon.admin("POST", "/reload").status == 200
    new = Caller(daemon, NEW_KEY)
    new.start()
    old.more()
    new.more()
    assert old.end() == {200}
    rewrite(daemon, f"{KEY}, {NEW_KEY}", NEW_KEY)
    before = reloads(daemon)
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: reloads(daemon) > before, "the reload")
    new.more()
    assert new.end() == {200}
    assert daemon.graphql(QUICK, KEY).status == 401


@pytest.mark.direct("a pooler forwards no notifications")
def test_notification_reloads_the_configuration(daemon: Daemon, served: Database) -> None:
    """PostgREST's notification also reloads the configuration file."""
    sums = "/rest/v1/note?select=id.sum()"
    assert daemon.request("GET", sums, headers={"apikey": KEY}).status == 400
    daemon.graphql(QUICK)
    wait_for(lambda: "/graphql/v1" in daemon.text, "the log line of the worker, written by its parent")
    rewrite(daemon, "log-level = info", "log-level = warn")
    rewrite(daemon, "[project]", "[project]\ndb-aggregates-enabled = yes")
    served.execute("notify pgrst, 'reload config'")
    wait_for(lambda: reloads(daemon) > 0, "the reload")
    assert daemon.request("GET", sums, headers={"apikey": KEY}).json == [{"sum": 1}]
    assert "/graphql/v1" not in str(logged_by_request(daemon))


def logged_by_request(daemon: Daemon) -> list[dict[str, Any]]:
    """Send a request and return the log lines that it has produced."""
    before = len(daemon.lines)
    daemon.graphql(QUICK)
    daemon.wait_ready()
    return daemon.lines[before:]


def test_invalid_setting_is_reported_and_changes_nothing(daemon: Daemon) -> None:
    rewrite(daemon, "[project]", "[project]\ndb-pool = many")
    reloaded = daemon.admin("POST", "/reload")
    assert reloaded.status == 503
    assert "db-pool = 'many'" in reloaded.json["failures"]["configuration"]
    assert daemon.graphql(QUICK).status == 200
    assert any("the configuration was not applied" in line["message"] for line in daemon.lines)
    rewrite(daemon, "db-pool = many", "db-pool = 3")
    rewrite(daemon, "db-uri = ", "db-uri = postgresql://authenticator@127.0.0.1:1/none ; ")
    reloaded = daemon.admin("POST", "/reload")
    assert reloaded.status == 503
    assert "the new settings were not applied" in str(reloaded.json["failures"])
    assert daemon.graphql(QUICK).status == 200


def test_reload_command_fails_on_invalid_settings(daemon: Daemon) -> None:
    def reload() -> tuple[int, str]:
        command = [*DATAAPI, "reload", "--config", str(daemon.config)]
        done = execute(command, daemon.folder)
        assert done.stdout == ""
        return done.returncode, done.stderr

    def logged(text: str) -> bool:
        return any(line["message"] == text for line in daemon.lines)

    assert reload() == (0, "")
    wait_for(lambda: logged("reloaded on POST /reload"), "the line of the reload")
    rewrite(daemon, "[project]", "[project]\ndb-pool = many")
    code, reason = reload()
    assert (code, "db-pool = 'many'" in reason) == (os.EX_CONFIG, True)
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: logged("the reload on SIGHUP failed for configuration"), "the line of the mistake")
    rewrite(daemon, "db-pool = many", "db-pool = 3")
    rewrite(daemon, "db-uri = ", "db-uri = postgresql://authenticator@127.0.0.1:1/none ; ")
    code, reason = reload()
    assert code == os.EX_TEMPFAIL
    assert reason.startswith("abcdefghijklmnopqrst: the new settings were not applied: ")
    rewrite(daemon, f"tcp:{daemon.admin_port}:", f"tcp:{daemon.port}:")
    rewrite(daemon, "[dataapi]\nlisten", "[dataapi]\nlisten = tcp:1 ;")
    code, reason = reload()
    assert (code, "the daemon responded with status 404" in reason) == (os.EX_UNAVAILABLE, True)
    assert reloads(daemon) == 1


def test_settings_that_need_a_restart_are_reported(daemon: Daemon) -> None:
    rewrite(daemon, f"tcp:{daemon.port}:", "tcp:1:")
    assert daemon.admin("POST", "/reload").status == 200
    assert daemon.graphql(QUICK).status == 200
    assert any("a restart is needed for the new values of listen" in line["message"] for line in daemon.lines)


def test_schema_cache_endpoint_returns_the_catalog(daemon: Daemon) -> None:
    shown = daemon.admin("GET", "/schema_cache")
    assert shown.status == 200
    [catalog] = shown.json.values()
    [note] = [table for table in catalog["tables"] if table["name"] == "note"]
    assert (note["schema"], note["primary_key"]) == ("public", ["id"])
    assert [column["name"] for column in note["columns"]] == ["id"]
    assert "anon" in catalog["roles"]
