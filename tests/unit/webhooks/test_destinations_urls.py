"""Endpoint URLs, with one test per attack (docs/reference/webhooks.md, URLs)."""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

import pytest
from dataapi.webhooks.delivery.destinations import Destination, UrlRefused, UrlRule, networks, parse
from hypothesis import given
from hypothesis import strategies as st

HOME = networks(["127.0.0.0/8", "fd00::/8"])


def rule(url: str, *, require_https: bool = False) -> UrlRule | None:
    """Return the rule that a URL violates, or None."""
    try:
        parse(url, require_https=require_https)
    except UrlRefused as refused:
        return refused.rule
    return None


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://a.example", Destination("https", "a.example", 443, "/", "a.example")),
        ("http://a.example:80/b", Destination("http", "a.example", 80, "/b", "a.example")),
        ("http://a.example:443", Destination("http", "a.example", 443, "/", "a.example:443")),
        ("HTTPS://A.Example:8443/B?c=D", Destination("https", "a.example", 8443, "/B?c=D", "a.example:8443")),
        ("https://a.example?x=1/2?3", Destination("https", "a.example", 443, "/?x=1/2?3", "a.example")),
        (
            "https://a.example/a/../b//%2e",
            Destination("https", "a.example", 443, "/a/../b//%2e", "a.example"),
        ),
        ("https://a.example/@b:c", Destination("https", "a.example", 443, "/@b:c", "a.example")),
        (
            'https://a.example/é?"<^>',
            Destination("https", "a.example", 443, "/%C3%A9?%22%3C%5E%3E", "a.example"),
        ),
        ("https://a--b.1x.example", Destination("https", "a--b.1x.example", 443, "/", "a--b.1x.example")),
    ],
)
def test_url_is_parsed_into_a_destination(url: str, target: Destination) -> None:
    assert parse(url) == target


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://bücher.example", "xn--bcher-kva.example"),
        ("https://BÜCHER.example", "xn--bcher-kva.example"),
        ("https://faß.example", "xn--fa-hia.example"),
        ("https://xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_international_names_are_encoded_with_idna_2008(url: str, name: str) -> None:
    assert parse(url).host == name


@pytest.mark.parametrize(
    "character", ["\t", "\r", "\n", "\0", " ", "\x7f", "\x85", "\xa0", "\u200b", "\u2028"]
)
@pytest.mark.parametrize(
    "template",
    ["{}https://a.example/", "https://a.ex{}ample/", "https://a.example/b{}c", "https://a.example/{}"],
)
def test_control_characters_and_blanks_are_rejected_anywhere(character: str, template: str) -> None:
    """``urlsplit`` silently removes some of these characters, and ``getaddrinfo`` stops at NUL."""
    assert rule(template.format(character)) is UrlRule.CHARACTERS


@pytest.mark.parametrize(
    "url", ["https:\\\\a.example", "https://a.example\\@b.example/", "https://a.example/\\"]
)
def test_backslashes_are_rejected(url: str) -> None:
    assert rule(url) is UrlRule.CHARACTERS


@pytest.mark.parametrize(
    "url",
    ["https://u@a.example", "https://u:p@a.example", "https://@a.example", "https://a.example:80@b.example"],
)
def test_user_names_and_passwords_are_rejected(url: str) -> None:
    assert rule(url) is UrlRule.USERINFO


@pytest.mark.parametrize(
    "url", ["https://a.example/#", "https://a.example#@b.example", "https://a.example/b?c#d"]
)
def test_fragments_are_rejected(url: str) -> None:
    assert rule(url) is UrlRule.FRAGMENT


@pytest.mark.parametrize(
    "url", ["https://a%2eexample", "https://%61.example", "https://a.example%00.b.example"]
)
def test_percent_encoded_hosts_are_rejected(url: str) -> None:
    assert rule(url) is UrlRule.HOST


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example",
        "file:///etc/passwd",
        "gopher://a.example",
        "javascript://a.example",
        "httpss://a.example",
    ],
)
def test_other_schemes_are_rejected(url: str) -> None:
    assert rule(url) is UrlRule.SCHEME


def test_http_is_rejected_if_https_is_required() -> None:
    assert rule("http://a.example", require_https=True) is UrlRule.SCHEME
    assert rule("https://a.example", require_https=True) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.example",
        "//a.example",
        "https:a.example",
        "https:/a.example",
        "://a.example",
        "https://[a.example",
        "https://a.example:1:2",
        "https://[::1]x/",
    ],
)
def test_malformed_urls_are_rejected(url: str) -> None:
    assert rule(url) is UrlRule.SYNTAX


@pytest.mark.parametrize("port", ["", "0", "65536", "080", "+80", "\uff18\uff10", "80a", "-1"])
def test_ports_are_numbers_from_1_to_65535(port: str) -> None:
    assert rule(f"https://a.example:{port}/") is UrlRule.PORT
    assert rule("https://a.example:65535/") is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "a",
        "com",
        "intranet",
        ".example",
        "a..example",
        "a.example.",
        "-a.example",
        "a-.example",
        "a_b.example",
        "a*.example",
        "a" * 64 + ".example",
        "a." * 126 + "example",
    ],
)
def test_names_have_at_least_two_labels_of_letters_digits_and_hyphens(host: str) -> None:
    assert rule(f"https://{host}/") is UrlRule.HOST


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "a.localhost",
        "LOCALHOST",
        "printer.local",
        "metadata.google.internal",
        "1.0.0.127.in-addr.arpa",
        "router.home.arpa",
    ],
)
def test_names_in_internal_zones_are_rejected(host: str) -> None:
    assert rule(f"https://{host}/") is UrlRule.HOST
    with pytest.raises(UrlRefused):
        parse(f"https://{host}/", allowed=HOME)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "93.184.215.14", "[::1]", "[2606:4700::1]", "[::ffff:127.0.0.1]"]
)
def test_ip_addresses_are_rejected(host: str) -> None:
    assert rule(f"https://{host}/") is UrlRule.ADDRESS


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7F.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.0x1",
        "0x",
        "a.0x",
        "a.example.1",
        "[::1%25lo]",
        "[1.2.3.4]",
        "[x]",
        "1.2.3.4.5",
    ],
)
def test_other_spellings_of_ip_addresses_are_rejected(host: str) -> None:
    assert rule(f"https://{host}/") in (UrlRule.HOST, UrlRule.ADDRESS)
    with pytest.raises(UrlRefused):
        parse(f"https://{host}/", allowed=HOME)


@pytest.mark.parametrize(
    "host",
    [
        "\uff11\uff12\uff17.0.0.1",
        "127。0。0。1",
        "\uff41.example",
        "⑯⑧.example",
        "a\u00ad.example",
        "\u212aelvin.example",
        "\u212bngstrom.example",
        "xn--a.example",
        "☃.example",
    ],
)
def test_characters_that_other_programs_translate_are_rejected(host: str) -> None:
    assert rule(f"https://{host}/") in (UrlRule.HOST, UrlRule.CHARACTERS)


def test_urls_have_at_most_2048_characters() -> None:
    start = "https://a.example/"
    assert rule(start + "b" * (2048 - len(start))) is None
    assert rule(start + "b" * (2049 - len(start))) is UrlRule.LENGTH
    # Percent-encoding turns each of these characters into six.
    assert rule(start + "é" * 400) is UrlRule.LENGTH


@pytest.mark.parametrize(
    ("url", "host", "header"),
    [
        ("http://127.0.0.1:9000/", "127.0.0.1", "127.0.0.1:9000"),
        ("http://[fd00::0001]/", "fd00::1", "[fd00::1]"),
        ("https://[FD00::1]:8443/", "fd00::1", "[fd00::1]:8443"),
    ],
)
def test_addresses_in_allowed_networks_are_accepted(url: str, host: str, header: str) -> None:
    """``allow-addresses`` permits the operator's own receivers."""
    target = parse(url, allowed=HOME)
    assert (target.host, target.host_header) == (host, header)
    assert target.address == ipaddress.ip_address(host)
    assert rule(url) is UrlRule.ADDRESS


def test_addresses_outside_allowed_networks_are_rejected() -> None:
    for host in ("10.0.0.1", "93.184.215.14", "[fe80::1]", "[fd00::1%25eth0]", "[fd00::1%eth0]"):
        with pytest.raises(UrlRefused):
            parse(f"http://{host}/", allowed=HOME)


PARTS = st.sampled_from(
    [
        "http",
        "https",
        "://",
        ":",
        "/",
        "//",
        "@",
        "#",
        "?",
        "%",
        "\\",
        ".",
        "a",
        "example",
        "localhost",
        "127",
        "0x7f",
        "1",
        "[",
        "]",
        "::1",
        "xn--",
        "é",
        "\t",
        "\n",
        "\0",
        " ",
        "\uff18",
        "。",
        "80",
    ]
)


@given(st.lists(PARTS, max_size=12).map("".join) | st.text(max_size=30).map("https://{}".format))
def test_other_parsers_agree_on_accepted_urls(url: str) -> None:
    """Attackers use URLs that two parsers interpret differently."""
    try:
        target = parse(url)
    except UrlRefused:
        return
    assert re.fullmatch(r"https?://[a-z0-9.-]+(:[0-9]+)?/[!-~]*", target.url)
    assert parse(target.url) == target
    split = urlsplit(target.url)
    assert (split.scheme, split.hostname, split.username) == (target.scheme, target.host, None)
    assert (split.port or {"http": 80, "https": 443}[target.scheme]) == target.port
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo(target.host, None, flags=socket.AI_NUMERICHOST)
