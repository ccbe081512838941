"""Statements that ``log-query`` selects."""

from __future__ import annotations

from typing import Literal

import pytest
from dataapi.http.messages import RoundTrip
from dataapi.service.project import query_log
from dataapi.settings import Project
from twisted.logger import globalLogPublisher

RUN = {"quick": (0.1, ""), "slow": (0.5, ""), "failed": (0.1, "42501")}


@pytest.mark.parametrize(
    ("setting", "logged"),
    [("no", []), ("errors", ["failed"]), ("slow", ["slow", "failed"]), ("all", ["quick", "slow", "failed"])],
)
def test_log_query_selects_the_statements(
    setting: Literal["no", "errors", "slow", "all"], logged: list[str]
) -> None:
    log = query_log(Project("a" * 20, "acme", "postgresql://unused", log_query=setting))
    statements: list[str] = []

    def observe(event: dict[str, str]) -> None:
        statements.append(event["sql"])

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
    for name, (seconds, code) in RUN.items():
        if log is not None:
            log.add(RoundTrip(0.0, seconds, name), code)
    globalLogPublisher.removeObserver(observe)  # type: ignore[arg-type]
    assert statements == logged
