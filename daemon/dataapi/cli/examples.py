"""The examples in ``--help`` and the manual page, by command."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

_HEADING = "Examples:"

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "dataapi": (
        "dataapi init postgresql://postgres@127.0.0.1/app --anon read",
        "dataapi check-config",
        "dataapi schema --role anon",
    ),
    "dataapi init": (
        "dataapi init postgresql://postgres@127.0.0.1/app --anon read",
        "dataapi init postgresql://postgres@127.0.0.1/app --authenticated orders,invoices --webhooks",
        "dataapi init --print --schema shop > setup.sql",
    ),
    "dataapi check-config": (
        "dataapi check-config",
        "dataapi check-config --config /etc/dataapi/dataapi.ini --offline",
    ),
    "dataapi advise": (
        "dataapi advise",
        "dataapi advise --format json --ignore huge-table",
        "dataapi advise --ignore 'unlogged-table: table public.cache'",
    ),
    "dataapi keys": ("dataapi keys", "dataapi keys --config /etc/dataapi/dataapi.ini"),
    "dataapi ready": ("dataapi ready", "dataapi ready --project abcdefghijklmnopqrst"),
    "dataapi reload": ("dataapi reload --config /etc/dataapi/dataapi.ini",),
    "dataapi schema": (
        "dataapi schema --role anon > schema.graphql",
        "dataapi schema --role authenticated --format openapi > openapi.json",
    ),
    "dataapi types": (
        "dataapi types --role authenticated > database.types.ts",
        "dataapi types --role authenticated --check database.types.ts",
        "dataapi types --role anon --schema api --schema shop > database.types.ts",
    ),
    "dataapi version": ("dataapi version",),
    "dataapi migrate": ("dataapi migrate --config /etc/dataapi/dataapi.ini",),
    "dataapi migrate-config": (
        "dataapi migrate-config postgrest.conf",
        "dataapi migrate-config postgrest.conf --output dataapi.ini",
    ),
    "dataapi organization": (
        "dataapi organization create acme --early-access",
        "dataapi organization list",
    ),
    "dataapi organization create": ("dataapi organization create acme --early-access",),
    "dataapi organization allow": ("dataapi organization allow acme",),
    "dataapi organization disallow": ("dataapi organization disallow acme",),
    "dataapi organization list": ("dataapi organization list",),
    "dataapi project": (
        "dataapi project create abcdefghijklmnopqrst --organization acme",
        "dataapi project list",
    ),
    "dataapi project create": ("dataapi project create abcdefghijklmnopqrst --organization acme",),
    "dataapi project transfer": ("dataapi project transfer abcdefghijklmnopqrst --organization globex",),
    "dataapi project list": ("dataapi project list",),
    "dataapi token": (
        "dataapi token create --organization acme --expires 90",
        "dataapi token list",
    ),
    "dataapi token create": (
        "dataapi token create --organization acme --expires 90",
        "dataapi token create --organization acme --permission events:publish",
        "dataapi token create --operator",
    ),
    "dataapi token revoke": ("dataapi token revoke 0197c2d4-8a51-7c3e-9f60-5b8d2e4a1c73",),
    "dataapi token list": ("dataapi token list", "dataapi token list | grep usable"),
    "dataapi secrets": ("dataapi secrets reseal",),
    "dataapi secrets reseal": ("dataapi secrets reseal",),
    "dataapi webhooks": (
        "dataapi webhooks types add v1.shop.order",
        "dataapi webhooks watch shop.orders v1.shop.order --organization acme",
        "dataapi webhooks watches",
    ),
    "dataapi webhooks watch": (
        "dataapi webhooks watch shop.orders v1.shop.order --organization acme",
        "dataapi webhooks watch shop.orders v1.shop.order --operations insert,update --when 'new.total > 9'",
        "dataapi webhooks watch shop.orders v1.shop.order --organization-column tenant --print",
    ),
    "dataapi webhooks unwatch": ("dataapi webhooks unwatch shop.orders v1.shop.order",),
    "dataapi webhooks watches": ("dataapi webhooks watches",),
    "dataapi webhooks types": (
        "dataapi webhooks types add v1.shop.order",
        "dataapi webhooks types list",
    ),
    "dataapi webhooks types add": ("dataapi webhooks types add v1.shop.order",),
    "dataapi webhooks types remove": ("dataapi webhooks types remove v1.shop.order",),
    "dataapi webhooks types list": ("dataapi webhooks types list",),
    "dataapi event": ("dataapi event publish v1.project.restored --project abcdefghijklmnopqrst",),
    "dataapi event publish": (
        "dataapi event publish v1.project.restored --project abcdefghijklmnopqrst",
        "dataapi event publish v1.shop.order --organization acme --payload '{\"total\": 12}'",
    ),
}


class Formatter(argparse.HelpFormatter):
    """Keeps the line breaks of examples, and wraps all other text."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_HEADING) else super()._fill_text(text, width, indent)


def parsers(words: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from parsers(f"{words} {name}", below)


def is_group(parser: argparse.ArgumentParser) -> bool:
    return any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)


def spelling(action: argparse.Action) -> str:
    """Return the usage of an argument, such as ``--config FILE``."""
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if not action.option_strings:
        return str(value)
    return action.option_strings[-1] + ("" if action.nargs == 0 else f" {value}")


def add_examples(parser: argparse.ArgumentParser) -> None:
    for words, command in parsers(parser.prog, parser):
        command.epilog = "\n  ".join([_HEADING, *EXAMPLES[words]])
        command.formatter_class = Formatter
