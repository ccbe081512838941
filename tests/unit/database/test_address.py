"""Connection strings are parsed as by libpq, and host names are resolved without blocking."""

from __future__ import annotations

import psycopg
import pytest
from dataapi.database.address import (
    balances,
    connect_timeout,
    connection_parameters,
    has_host_names,
    is_replica_string,
    parameters,
    prefers_standbys,
    primary_uri,
    refused_by_server,
    servers,
    targets,
    without_server,
)

ADDRESSES = {"db": ["10.0.0.1"], "two": ["::1", "10.0.0.2"]}


def look_up(name: str) -> list[str]:
    try:
        return ADDRESSES[name]
    except KeyError:
        raise OSError(f"unknown {name}") from None


def connection_order(uri: str) -> list[tuple[str | None, ...]]:
    """Return the host, address and port of each target, in order. For None, libpq uses its default."""
    found = targets(parameters(uri), look_up, shuffle=list.reverse)
    return [tuple(target.parameters.get(name) for name in ("host", "hostaddr", "port")) for target in found]


def test_host_name_is_resolved() -> None:
    """The host name is still needed for TLS verification."""
    assert connection_order("postgresql://u@db:5433/x") == [("db", "10.0.0.1", "5433")]


def test_every_address_of_a_host_is_tried() -> None:
    assert connection_order("postgresql://u@two:1/x") == [("two", "::1", "1"), ("two", "10.0.0.2", "1")]


def test_several_hosts_keep_their_order_and_ports() -> None:
    assert connection_order("postgresql://u@db:1,[::1]:2,127.0.0.1:3/x") == [
        ("db", "10.0.0.1", "1"), ("::1", None, "2"), ("127.0.0.1", None, "3"),
    ]  # fmt: skip
    assert connection_order("host=two,/run/postgresql,@abstract, port=7 dbname=x") == [
        ("two", "::1", "7"), ("two", "10.0.0.2", "7"), ("/run/postgresql", None, "7"),
        ("@abstract", None, "7"), ("", None, "7"),
    ]  # fmt: skip


def test_hostaddr_entries_belong_to_hosts_in_order() -> None:
    assert connection_order("host=db,gone hostaddr=,10.0.0.9 port=1,") == [
        ("db", "10.0.0.1", "1"), ("gone", "10.0.0.9", ""),
    ]  # fmt: skip
    assert connection_order("hostaddr=10.0.0.8,10.0.0.9") == [
        (None, "10.0.0.8", None),
        (None, "10.0.0.9", None),
    ]


def test_unresolvable_host_is_reported_by_its_target() -> None:
    gone, other = targets(parameters("postgresql://u@gone:1,db:2/x"), look_up)
    assert gone.problem == 'could not translate host name "gone" to address: unknown gone'
    assert not other.problem


@pytest.mark.parametrize("uri", ["host=a,b,c port=1,2", "host=a,b hostaddr=10.0.0.1", "host=a port=1,2"])
def test_lists_of_different_lengths_are_left_to_libpq(uri: str) -> None:
    given = parameters(uri)
    assert [target.parameters for target in targets(given, look_up)] == [given]


def test_hosts_are_shuffled_on_request() -> None:
    """``load_balance_hosts=random`` shuffles the hosts, and the addresses of each host."""
    assert connection_order("postgresql://u@db,two/x?load_balance_hosts=random") == [
        ("two", "10.0.0.2", ""), ("two", "::1", ""), ("db", "10.0.0.1", ""),
    ]  # fmt: skip
    assert connection_order("postgresql://u@db,two/x?load_balance_hosts=disable")[0] == ("db", "10.0.0.1", "")


def test_prefer_standby_falls_back_to_any_server() -> None:
    found = targets(parameters("postgresql://u@db,two/x?target_session_attrs=prefer-standby"), look_up)
    wanted = [(target.parameters["hostaddr"], target.parameters["target_session_attrs"]) for target in found]
    assert wanted == [
        ("10.0.0.1", "standby"), ("::1", "standby"), ("10.0.0.2", "standby"),
        ("10.0.0.1", "any"), ("::1", "any"), ("10.0.0.2", "any"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("postgresql://u@127.0.0.1,127.0.0.2/x", "primary"),
        ("postgresql://u@one,two/x?target_session_attrs=prefer-standby", "primary"),
        ("hostaddr=10.0.0.1,10.0.0.2 target_session_attrs=read-only", "primary"),
        ("postgresql://u@several-addresses/x", "primary"),
        ("postgresql://u@one,two/x?target_session_attrs=read-write", "read-write"),
        ("postgresql://u@127.0.0.1/x", None),
        ("postgresql://u@127.0.0.1/x?target_session_attrs=standby", "standby"),
        ("postgresql:///x", None),
    ],
)
def test_primary_is_required_if_there_are_several_servers(uri: str, wanted: str | None) -> None:
    """The other parameters do not change."""
    chosen, given = parameters(primary_uri(uri)), parameters(uri)
    assert chosen.pop("target_session_attrs", None) == wanted
    given.pop("target_session_attrs", None)
    assert chosen == given


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
def test_addresses_need_no_name_resolution(uri: str) -> None:
    given = parameters(uri)
    assert not has_host_names(given)
    assert [target.parameters for target in targets(given, look_up)] == [given]


@pytest.mark.parametrize(
    ("reason", "refused"),
    [
        ('connection to server at "h", port 1 failed: FATAL:  password authentication failed', True),
        ('connection to server at "h", port 1 failed: ВАЖНО:  роль не существует', True),
        ('connection to server at "h", port 1 failed: FATAL:  the database system is starting up', False),
        ('connection to server at "h", port 1 failed: Connection refused', False),
        ('connection to server at "h", port 1 failed: session is read-only', False),
        ("timeout expired", False),
    ],
)
def test_only_a_refusal_by_the_server_ends_the_search(reason: str, refused: bool) -> None:
    assert refused_by_server(reason) == refused


def test_malformed_connection_string_is_rejected() -> None:
    with pytest.raises(psycopg.ProgrammingError):
        parameters("postgresql://[")


@pytest.mark.parametrize(
    ("query", "seconds"), [("", 10), ("?connect_timeout=3", 3), ("?connect_timeout=0", 10)]
)
def test_connect_timeout_is_never_unlimited(query: str, seconds: float) -> None:
    """The default of ten seconds also replaces ``connect_timeout=0``."""
    assert connect_timeout(parameters(f"postgresql://u@db/x{query}")) == seconds


@pytest.mark.parametrize(
    ("uri", "random"),
    [
        ("postgresql://u@a,b/x?load_balance_hosts=random", True),
        ("postgresql://u@a,b/x?connect_timeout=3&load_balance_hosts=random&sslmode=disable", True),
        ("host=a,b load_balance_hosts = 'random' dbname=x", True),
        ("postgresql://u@a,b/x?load_balance_hosts=disable", False),
        ("postgresql://u@a,b/x", False),
    ],
)
def test_host_order_is_decided_before_libpq(uri: str, *, random: bool) -> None:
    """Versions of libpq before 16 reject ``load_balance_hosts``."""
    assert balances(uri) is random
    for target in targets(parameters(uri), look_up):
        assert "load_balance_hosts" not in target.parameters
        assert target.parameters["dbname"] == "x"


def test_unknown_load_balance_hosts_value_is_rejected() -> None:
    with pytest.raises(psycopg.ProgrammingError, match="round"):
        parameters("postgresql://u@a,b/x?load_balance_hosts=round")


def test_each_replica_has_a_connection_string() -> None:
    """``target_session_attrs`` is "any", because a replica may be promoted."""
    found = servers("postgresql://u@one:1,[::1]/x?target_session_attrs=standby&load_balance_hosts=random")
    assert list(found) == ["one:1", "::1:5432"]
    assert parameters(found["one:1"]).items() >= {
        "host": "one", "port": "1", "dbname": "x", "target_session_attrs": "any",
    }.items()  # fmt: skip
    assert list(servers("postgresql:///x")) == ["localhost:5432"]


@pytest.mark.parametrize(
    ("attributes", "accepted", "only_standbys"),
    [
        ("", True, False),
        ("any", True, False),
        ("standby", True, True),
        ("prefer-standby", True, True),
        ("read-only", True, True),
        ("primary", False, False),
        ("read-write", False, False),
    ],
)
def test_replica_string_may_restrict_to_standbys(
    attributes: str, *, accepted: bool, only_standbys: bool
) -> None:
    uri = f"postgresql://u@a,b/x?target_session_attrs={attributes}" if attributes else "host=a,b"
    assert is_replica_string(uri) is accepted
    assert prefers_standbys(uri) is only_standbys
    assert not is_replica_string("host=a,b port=1,2,3")


@pytest.mark.parametrize(
    ("hosts", "target", "others"),
    [
        ("host=one,two,three port=5433", {"host": "two", "port": "5433"}, ["one:5433", "three:5433"]),
        ("host=one,one port=1,2", {"host": "one", "port": "1", "hostaddr": "192.0.2.1"}, ["one:2"]),
        (
            "hostaddr=192.0.2.1,192.0.2.2 port=1,1",
            {"hostaddr": "192.0.2.2", "port": "1"},
            ["192.0.2.1:1"],
        ),
        ("host=one,two", {"host": "two"}, ["one:5432"]),
    ],
)
def test_one_of_several_hosts_is_left_out(hosts: str, target: dict[str, str], others: list[str]) -> None:
    def names(params: dict[str, str]) -> list[str]:
        return list(servers(" ".join(f"{name}={value}" for name, value in params.items())))

    params = connection_parameters(hosts, {})
    assert names(without_server(params, target)) == others
