"""Connection strings are read as libpq reads them, and host names get addresses without blocking libpq."""

from __future__ import annotations

import psycopg2
import pytest
from dataapi.database.address import connect_timeout, has_names, parameters, resolved

ADDRESSES = {"db": ["10.0.0.1"], "two": ["::1", "10.0.0.2"]}


def look_up(name: str) -> list[str]:
    """Stand in for the resolver."""
    try:
        return ADDRESSES[name]
    except KeyError:
        raise OSError(f"unknown {name}") from None


def places(uri: str) -> list[tuple[str, str, str]]:
    """Return host, address and port of every place that libpq will try."""
    given = resolved(parameters(uri), look_up)
    return list(
        zip(given["host"].split(","), given["hostaddr"].split(","), given["port"].split(","), strict=True)
    )


def test_a_name_gets_its_address() -> None:
    """The name stays for TLS, the address is for connecting."""
    assert places("postgresql://u@db:5433/x") == [("db", "10.0.0.1", "5433")]


def test_every_address_of_a_name_is_tried() -> None:
    """A name with two addresses is two places; the port is shared."""
    assert places("postgresql://u@two:1/x") == [("two", "::1", "1"), ("two", "10.0.0.2", "1")]


def test_several_hosts_keep_their_order_and_ports() -> None:
    """Names, addresses and sockets may be mixed; a name without an address is left out."""
    assert places("postgresql://u@db:1,gone:2,127.0.0.1:3/x") == [
        ("db", "10.0.0.1", "1"), ("127.0.0.1", "127.0.0.1", "3"),
    ]  # fmt: skip
    assert places("host=db,/run/postgresql dbname=x") == [
        ("db", "10.0.0.1", ""), ("/run/postgresql", "", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u@127.0.0.1/x",
        "postgresql://u@[::1]/x",
        "postgresql:///x?host=/run/postgresql",
        "postgresql:///x",
        "host=@abstract",
        "postgresql://u@db/x?hostaddr=10.0.0.9",
    ],
)
def test_nothing_to_look_up(uri: str) -> None:
    """Addresses, socket folders and given addresses are left as they are."""
    given = parameters(uri)
    assert not has_names(given)
    assert resolved(given, look_up) == given


def test_no_address_at_all_is_an_error() -> None:
    """When no name has an address there is nothing to connect to."""
    with pytest.raises(OSError, match="unknown gone"):
        resolved(parameters("postgresql://u@gone/x"), look_up)


def test_a_string_that_libpq_cannot_read_is_refused() -> None:
    """The mistake shows when the string is read, not at the first connection."""
    with pytest.raises(psycopg2.ProgrammingError):
        parameters("postgresql://[")


@pytest.mark.parametrize(
    ("query", "seconds"), [("", 10), ("?connect_timeout=3", 3), ("?connect_timeout=0", 10)]
)
def test_connecting_always_has_a_limit(query: str, seconds: float) -> None:
    """The URI's limit counts; without one, or with none at all, it is ten seconds."""
    assert connect_timeout(parameters(f"postgresql://u@db/x{query}")) == seconds
