"""Which statements ``log-query`` logs."""

from __future__ import annotations

from typing import Literal

import pytest
from dataapi.http.messages import RoundTrip
from dataapi.service.project import query_log
from dataapi.settings import Project
from twisted.logger import globalLogPublisher

RUN = {"quick": (0.1, ""), "slow": (0.5, ""), "failed": (0.1, "42501")}


@pytest.mark.parametrize(
    ("which", "logged"),
    [("no", []), ("errors", ["failed"]), ("slow", ["slow", "failed"]), ("all", ["quick", "slow", "failed"])],
)
def test_the_key_chooses_what_is_logged(
    which: Literal["no", "errors", "slow", "all"], logged: list[str]
) -> None:
    log = query_log(Project("a" * 20, "acme", "postgresql://unused", log_query=which))
    found: list[str] = []

    def observer(event: dict[str, str]) -> None:
        found.append(event["sql"])

    globalLogPublisher.addObserver(observer)  # type: ignore[arg-type]
    for name, (seconds, code) in RUN.items():
        if log is not None:
            log.add(RoundTrip(0.0, seconds, name), code)
    globalLogPublisher.removeObserver(observer)  # type: ignore[arg-type]
    assert found == logged
