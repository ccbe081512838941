"""Connection strings are read as libpq reads them, and host names get addresses without blocking libpq."""

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
    """Stand in for the resolver."""
    try:
        return ADDRESSES[name]
    except KeyError:
        raise OSError(f"unknown {name}") from None


def tried(uri: str) -> list[tuple[str | None, ...]]:
    """Return host, address and port of every place, in order; None for what libpq is to choose."""
    found = targets(parameters(uri), look_up, shuffle=list.reverse)
    return [tuple(place.parameters.get(name) for name in ("host", "hostaddr", "port")) for place in found]


def test_a_name_gets_its_address() -> None:
    """The name stays for TLS, the address is for connecting."""
    assert tried("postgresql://u@db:5433/x") == [("db", "10.0.0.1", "5433")]


def test_every_address_of_a_name_is_tried() -> None:
    """A name with two addresses is two places; the port is shared."""
    assert tried("postgresql://u@two:1/x") == [("two", "::1", "1"), ("two", "10.0.0.2", "1")]


def test_several_hosts_keep_their_order_and_ports() -> None:
    """Names, addresses, sockets and libpq's default may be mixed; one port is every host's."""
    assert tried("postgresql://u@db:1,[::1]:2,127.0.0.1:3/x") == [
        ("db", "10.0.0.1", "1"), ("::1", None, "2"), ("127.0.0.1", None, "3"),
    ]  # fmt: skip
    assert tried("host=two,/run/postgresql,@abstract, port=7 dbname=x") == [
        ("two", "::1", "7"), ("two", "10.0.0.2", "7"), ("/run/postgresql", None, "7"),
        ("@abstract", None, "7"), ("", None, "7"),
    ]  # fmt: skip


def test_given_addresses_belong_to_the_hosts_in_order() -> None:
    """A host whose address is given is not looked up; addresses need no hosts."""
    assert tried("host=db,gone hostaddr=,10.0.0.9 port=1,") == [
        ("db", "10.0.0.1", "1"), ("gone", "10.0.0.9", ""),
    ]  # fmt: skip
    assert tried("hostaddr=10.0.0.8,10.0.0.9") == [(None, "10.0.0.8", None), (None, "10.0.0.9", None)]


def test_a_name_without_an_address_says_so_in_its_place() -> None:
    """The others are tried all the same."""
    gone, other = targets(parameters("postgresql://u@gone:1,db:2/x"), look_up)
    assert gone.problem == 'could not translate host name "gone" to address: unknown gone'
    assert not other.problem


@pytest.mark.parametrize("uri", ["host=a,b,c port=1,2", "host=a,b hostaddr=10.0.0.1", "host=a port=1,2"])
def test_lists_that_do_not_match_are_left_to_libpq(uri: str) -> None:
    """It says what is wrong with them."""
    given = parameters(uri)
    assert [place.parameters for place in targets(given, look_up)] == [given]


def test_hosts_are_shuffled_where_that_is_asked_for() -> None:
    """``load_balance_hosts=random`` shuffles the hosts, and the addresses of each."""
    assert tried("postgresql://u@db,two/x?load_balance_hosts=random") == [
        ("two", "10.0.0.2", ""), ("two", "::1", ""), ("db", "10.0.0.1", ""),
    ]  # fmt: skip
    assert tried("postgresql://u@db,two/x?load_balance_hosts=disable")[0] == ("db", "10.0.0.1", "")


def test_a_preferred_standby_may_be_missing() -> None:
    """All places are tried for a standby, and then again for any server."""
    found = targets(parameters("postgresql://u@db,two/x?target_session_attrs=prefer-standby"), look_up)
    wanted = [(place.parameters["hostaddr"], place.parameters["target_session_attrs"]) for place in found]
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
def test_the_primary_is_looked_for_where_there_is_a_choice(uri: str, wanted: str | None) -> None:
    """All else of the URI stays."""
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
def test_nothing_to_look_up(uri: str) -> None:
    """Addresses, socket folders and given addresses are left as they are."""
    given = parameters(uri)
    assert not has_host_names(given)
    assert [place.parameters for place in targets(given, look_up)] == [given]


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
def test_only_a_servers_own_refusal_ends_the_search(reason: str, refused: bool) -> None:
    """As with libpq: whoever may not log in here is not tried elsewhere; one that starts is passed by."""
    assert refused_by_server(reason) == refused


def test_a_string_that_libpq_cannot_read_is_refused() -> None:
    """The mistake shows when the string is read, not at the first connection."""
    with pytest.raises(psycopg.ProgrammingError):
        parameters("postgresql://[")


@pytest.mark.parametrize(
    ("query", "seconds"), [("", 10), ("?connect_timeout=3", 3), ("?connect_timeout=0", 10)]
)
def test_connecting_always_has_a_limit(query: str, seconds: float) -> None:
    """The URI's limit counts; without one, or with none at all, it is ten seconds."""
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
def test_the_order_of_hosts_is_ours_to_choose(uri: str, *, random: bool) -> None:
    """Libpq never sees ``load_balance_hosts``, which it does not know before version 16."""
    assert balances(uri) is random
    for place in targets(parameters(uri), look_up):
        assert "load_balance_hosts" not in place.parameters
        assert place.parameters["dbname"] == "x"


def test_a_balance_that_libpq_does_not_know_is_refused() -> None:
    """As libpq refuses it."""
    with pytest.raises(psycopg.ProgrammingError, match="round"):
        parameters("postgresql://u@a,b/x?load_balance_hosts=round")


def test_each_replica_has_a_connection_string() -> None:
    """Whatever it is, as replicas are promoted; the rest of the URI stays."""
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
def test_replicas_may_be_standbys_alone(attributes: str, *, accepted: bool, only_standbys: bool) -> None:
    """Only a primary makes no sense among them."""
    uri = f"postgresql://u@a,b/x?target_session_attrs={attributes}" if attributes else "host=a,b"
    assert is_replica_string(uri) is accepted
    assert prefers_standbys(uri) is only_standbys
    assert not is_replica_string("host=a,b port=1,2,3")


@pytest.mark.parametrize(
    ("listed", "place", "others"),
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
def test_one_of_several_hosts_is_left_out(listed: str, place: dict[str, str], others: list[str]) -> None:
    """Its port and, where it is listed, its address tell it from the others."""

    def names(params: dict[str, str]) -> list[str]:
        return list(servers(" ".join(f"{name}={value}" for name, value in params.items())))

    params = connection_parameters(listed, {})
    assert names(without_server(params, place)) == others
