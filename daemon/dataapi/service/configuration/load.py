"""Loads the configuration from file, environment and command line, and reports all errors together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dataapi.auth.keys import is_url, parse_keys
from dataapi.service.configuration.endpoints import http_address
from dataapi.service.configuration.keys import SECTIONS, keys_of
from dataapi.service.configuration.mistakes import GENERATED, ConfigurationError, Mistake, suggestion
from dataapi.service.configuration.parsers import InvalidValue
from dataapi.service.configuration.parsers import ref as parse_ref
from dataapi.service.configuration.sources import DEFAULT_FILES, TEMPLATE, ConfigurationSources, variable_name
from dataapi.settings import NotifyChannel, Project, Settings, Webhooks

_NAME = re.compile("[a-z0-9]+")


def load(
    path: Path | None,
    environ: Mapping[str, str],
    *,
    overrides: Iterable[tuple[str, str, str]] = (),
    read_file: Callable[[Path], bytes] = Path.read_bytes,
) -> Settings:
    """Return the configuration.

    :param path: the ini file (default: the first of ``DEFAULT_FILES`` that exists, or none).
    :param environ: ``DATAAPI_<SECTION>_<KEY>`` overrides the file.
    :param overrides: ``(section, key, value)`` from the command line. They override the file and the
        environment.
    :param read_file: reads the ini file, and files named by ``@/path`` values.
    :raises ConfigurationError: the configuration is invalid.
    """
    sources = ConfigurationSources(read_file)
    file = sources.file(path)
    sources.override(environ, overrides)
    if not sources.usable:
        raise ConfigurationError(sources.mistakes)
    if file is None and not any(section.startswith("project") for section in sources.sections):
        files = " and ".join(map(str, DEFAULT_FILES))
        variable = variable_name("project", "db-uri")
        expected = f"no file found: tried {files}; use --config, or set {variable}"
        if sources.exists(TEMPLATE):
            expected += f"; {TEMPLATE} is a template: copy it to {DEFAULT_FILES[0]}"
        raise ConfigurationError([*sources.mistakes, Mistake("configuration", expected, lacks=GENERATED)])
    return _assemble(sources, file)


def load_service(
    environ: Mapping[str, str], *, overrides: Iterable[tuple[str, str, str]] = (), defaults: Settings
) -> Settings:
    """Return ``defaults``, overridden by ``[dataapi]`` values of the environment and the command line.

    :raises ConfigurationError: the configuration is invalid.
    """
    sources = ConfigurationSources(Path.read_bytes)
    sources.override(environ, overrides)
    values = sources.values("dataapi")
    if sources.mistakes:
        raise ConfigurationError(sources.mistakes)
    return replace(defaults, deprecations=tuple(sources.deprecations), **values)


def _assemble(sources: ConfigurationSources, file: Path | None) -> Settings:
    for name in sources.sections:
        if keys_of(name) is None:
            sources.wrong(name, "", f"no such section{suggestion(name, SECTIONS)}")
    service = sources.values("dataapi")
    sections = [name for name in sources.sections if name == "project" or name.startswith("project:")]
    if not sections:
        sources.wrong("", "", "expected a section [project], or several [project:REF]")
    if len(sections) > 1 and "project" in sections:
        sources.wrong("project", "", "expected either one [project] or several [project:REF], not both")
    projects = {section: _project(sources, section) for section in sections}
    if len(projects) > 1:
        _check_hosts(sources, projects)
    webhooks = Webhooks(**sources.values("webhooks")) if "webhooks" in sources.sections else None
    notify = tuple(
        _notify(sources, name) for name in sources.sections if name == "notify" or name.startswith("notify:")
    )
    if notify and find_spec("txpostgres") is None:
        sources.wrong("notify", "", "expected the extra notify: pip install 'dataapi-daemon[notify]'")
    if notify and "webhooks" not in sources.sections:
        sources.wrong("webhooks", "", "expected this section, because [notify] publishes webhook events")
    if sources.mistakes:
        raise ConfigurationError(sources.mistakes)
    built = tuple(Project(**values) for values in projects.values())
    settings = Settings(
        projects=built,
        webhooks=webhooks,
        notify=tuple(NotifyChannel(**{"db_uri": built[0].db_uri, **values}) for values in notify),
        file=file,
        secret_files=tuple(dict.fromkeys(sources.secret_files)),
        deprecations=tuple(sources.deprecations),
        **service,
    )
    _check_ports(sources, settings)
    largest = max(project.max_body for project in built)
    if largest > settings.max_bodies:
        sources.wrong("dataapi", "max-bodies", f"expected at least {largest}, the max-body of a project")
    if sources.mistakes:
        raise ConfigurationError(sources.mistakes)
    return settings


def _check_ports(sources: ConfigurationSources, settings: Settings) -> None:
    seen = set()
    for key, endpoints in (("listen", settings.listen), ("admin-listen", settings.admin_listen)):
        for endpoint in endpoints:
            address = (http_address(endpoint) or "").partition("://")[2]
            if address in seen:
                expected = "expected another port: this one is used by a previous listener"
                sources.wrong("dataapi", key, expected, value=endpoint)
            if address and not address.endswith(":0"):
                seen.add(address)


def _project(sources: ConfigurationSources, section: str) -> dict[str, Any]:
    values = sources.values(section)
    _, several, name = section.partition(":")
    if several:
        try:
            values.setdefault("ref", parse_ref(name))
        except InvalidValue as error:
            sources.wrong(section, "", f"{error} after [project:")
        else:
            if values["ref"] not in (name, None):
                expected = f"expected {name}, as in the name of the section; or remove the key"
                sources.wrong(section, "ref", expected)
    if "db_uri" not in values:
        expected = "expected a connection string such as postgresql://authenticator@127.0.0.1/app"
        sources.wrong(section, "db-uri", expected)
    if values.get("graphql_documents_only") and "graphql_documents" not in values:
        expected = (
            "all documents would be rejected: expected graphql-documents, or graphql-documents-only = no"
        )
        sources.wrong(section, "graphql-documents-only", expected)
    _check_keys(sources, section, values)
    return values


def _notify(sources: ConfigurationSources, section: str) -> dict[str, Any]:
    values = sources.values(section)
    _, named, name = section.partition(":")
    if named and _NAME.fullmatch(name) is None:
        sources.wrong(section, "", "expected letters a-z and digits after [notify:")
    for key, expected in (
        ("channel", "a channel such as orders"),
        ("event-type", "a type such as v1.shop.order"),
    ):
        if key.replace("-", "_") not in values:
            sources.wrong(section, key, f"expected {expected}")
    if ("organization" in values) == ("organization_member" in values):
        sources.wrong(section, "organization", "expected either organization or organization-member")
    if "project" in values and "project_member" in values:
        sources.wrong(section, "project", "expected either project or project-member, not both")
    return {"section": section, **values}


def _check_keys(sources: ConfigurationSources, section: str, values: Mapping[str, Any]) -> None:
    if not values.get("db_config"):
        for key, expected, lacks in key_mistakes(values):
            sources.wrong(section, key, expected, lacks=lacks)


def key_mistakes(values: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (key, expectation, missing keys) for each mistake in the keys that authenticate clients."""
    signing = values.get("jwt_secret")
    if signing and values.get("jwt_secret_is_base64") and not is_url(signing):
        try:
            parse_keys(signing, is_base64=True)
        except ValueError as error:
            expected = f"jwt-secret {error}; expected the base64 of 32 bytes or more, or no"
            yield "jwt-secret-is-base64", expected.replace("jwt-secret the secret", "jwt-secret"), ()
    publishable, secret = values.get("publishable_keys", ()), values.get("secret_keys", ())
    if set(publishable or ()) & set(secret or ()):
        yield "secret-keys", "expected keys that are not in publishable-keys", ()
    authenticates = "jwt_secret" in values or publishable != () or secret != ()
    if values.get("require_api_key", True) and not authenticates:
        expected = (
            "all requests would be rejected: expected jwt-secret, publishable-keys or secret-keys "
            "(to generate them, run dataapi keys), or require-api-key = no"
        )
        yield "require-api-key", expected, GENERATED


def _check_hosts(sources: ConfigurationSources, projects: Mapping[str, Mapping[str, Any]]) -> None:
    owners: dict[str, str] = {}
    for section, values in projects.items():
        hosts = values.get("hosts", ())
        if hosts == ():
            sources.wrong(section, "hosts", "expected host names, because there are several projects")
        for host in dict.fromkeys(hosts or ()):
            owner = owners.setdefault(host, section)
            if owner != section:
                expected = f"expected each host name in one project only; [{owner}] also has it"
                sources.wrong(section, "hosts", expected, value=host)
