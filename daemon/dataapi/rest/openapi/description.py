"""Describes a schema for one role in OpenAPI 2.0 or 3.1."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from dataapi.auth.caller import REST_PREFIX
from dataapi.catalog.model import Catalog, Privileges
from dataapi.http.errors import ApiError
from dataapi.http.headers import MediaType, parse_accept, requested_address
from dataapi.http.messages import Request
from dataapi.rest.negotiation import OPENAPI, unavailable
from dataapi.rest.openapi import openapi3
from dataapi.rest.openapi.model import encode
from dataapi.rest.openapi.related import no_members, related_members
from dataapi.rest.openapi.swagger import to_swagger
from dataapi.rest.visible_schema import VisibleSchema
from dataapi.settings import NESTED_INSERTS, Project
from dataapi.telemetry.version import installed_version

REGISTERED = "application/vnd.oai.openapi+json"

_ANY = frozenset({"*/*", "application/*", "application/json"})


class Version(Enum):
    """Supported versions of OpenAPI."""

    SWAGGER = "2.0"
    OPENAPI = "3.1"


def describe(
    project: Project, catalog: Catalog, role: str, schema: str, version: Version, pause: Callable[[], None]
) -> bytes:
    """Return the description as a JSON object, without the members that contain the API's URL."""
    privileges = None if project.openapi_mode == "ignore-privileges" else Privileges(catalog, role)
    visible = VisibleSchema(catalog, schema, privileges, pause)
    related = related_members(visible) if NESTED_INSERTS in project.rest_features else no_members
    document = openapi3.document(
        visible, installed_version(), api_key=project.require_api_key, related=related
    )
    return encode(to_swagger(document) if version is Version.SWAGGER else document, pause)


def with_address(project: Project, request: Request, version: Version, description: bytes) -> bytes:
    """Return the description with its version and the API's URL as its first members.

    The URL is ``openapi-server-proxy-uri`` if set, else the request's URL in 2.0 and a relative URL in 3.1.
    """
    if version is Version.OPENAPI:
        return _with_server(project, description)
    address: dict[str, Any] = {"swagger": "2.0"}
    proxy = project.openapi_server_proxy_uri
    if proxy:
        proxy_url = urlsplit(proxy)
        base = proxy_url.path.rstrip("/") or "/"
        address |= {"host": proxy_url.netloc, "basePath": base, "schemes": [proxy_url.scheme]}
    else:
        scheme, host = requested_address(request.headers, secure=request.secure)
        if host:
            address["host"] = host
        address |= {"basePath": REST_PREFIX, "schemes": [scheme]}
    return _prepend(address, description)


def description_text(project: Project, catalog: Catalog, role: str) -> str:
    description = describe(project, catalog, role, project.db_schemas[0], Version.OPENAPI, lambda: None)
    return json.dumps(json.loads(_with_server(project, description)), indent=2, ensure_ascii=False)


def _prepend(first: dict[str, Any], description: bytes) -> bytes:
    return json.dumps(first).encode()[:-1] + b"," + description[1:]


def _with_server(project: Project, description: bytes) -> bytes:
    proxy = project.openapi_server_proxy_uri
    server = {"url": proxy.rstrip("/") if proxy else REST_PREFIX}
    return _prepend({"openapi": "3.1.0", "servers": [server]}, description)


# ---------------------------------------------------------------- negotiation


def negotiate_description(accept: str | None, requested: str | None) -> tuple[str, Version]:
    """Return the preferred content type and OpenAPI version of the description.

    :param requested: version in the query string. It takes precedence over ``Accept``.
    :raises ApiError: PGRST107 (406) if no accepted media type is available, PGRST100 (400) for an unknown
        version.
    """
    if requested is not None and requested not in {version.value for version in Version}:
        raise ApiError(400, "PGRST100", f"Unsupported OpenAPI version: {requested}", hint="Use 2.0 or 3.1.")
    media_ranges = parse_accept(accept or "*/*")
    for media_range in media_ranges:
        version = _version(media_range)
        if version is not None:
            chosen = Version(requested) if requested else version
            name = media_range.name if media_range.name in (OPENAPI, REGISTERED) else OPENAPI
            parameter = "; version=3.1" if chosen is Version.OPENAPI else ""
            return f"{name}{parameter}; charset=utf-8", chosen
    raise unavailable(media_range.name for media_range in media_ranges)


def _version(media_range: MediaType) -> Version | None:
    if media_range.name in _ANY:
        return Version.SWAGGER
    if media_range.name not in (OPENAPI, REGISTERED):
        return None
    requested = media_range.parameter("version")
    if requested is None:
        return Version.SWAGGER
    # Patch versions of OpenAPI do not change the format.
    return next(
        (each for each in Version if requested == each.value or requested.startswith(f"{each.value}.")), None
    )
