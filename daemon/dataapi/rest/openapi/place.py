"""Whole descriptions: with the address of the API, from the request or the configuration, before all else."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

from dataapi.access.gate import REST_PREFIX
from dataapi.catalog.model import Catalog
from dataapi.rest.openapi.descriptions import Version, describe
from dataapi.settings import Project
from dataapi.web.messages import Request

_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")


def with_place(project: Project, request: Request, version: Version, description: bytes) -> bytes:
    """Return the description with its version and the API's address before all else.

    The address is ``openapi-server-proxy-uri`` where that is set, else the one that the request was sent to.
    """
    first = _openapi_place(project) if version is Version.OPENAPI else _swagger_place(project, request)
    return _prepend(first, description)


def description_text(project: Project, catalog: Catalog, role: str) -> str:
    """Return the OpenAPI 3.1 description of the first exposed schema for people to read and to compare."""
    description = describe(project, catalog, role, project.db_schemas[0], Version.OPENAPI, lambda: None)
    whole = json.loads(_prepend(_openapi_place(project), description))
    return json.dumps(whole, indent=2, ensure_ascii=False)


def _prepend(first: dict[str, Any], description: bytes) -> bytes:
    return json.dumps(first).encode()[:-1] + b"," + description[1:]


def _openapi_place(project: Project) -> dict[str, Any]:
    proxy = project.openapi_server_proxy_uri
    return {"openapi": "3.1.0", "servers": [{"url": proxy.rstrip("/") if proxy else REST_PREFIX}]}


def _swagger_place(project: Project, request: Request) -> dict[str, Any]:
    proxy = project.openapi_server_proxy_uri
    return {"swagger": "2.0", **(_of_proxy(proxy) if proxy else _of_request(request))}


def _of_proxy(address: str) -> dict[str, Any]:
    place = urlsplit(address)
    return {"host": place.netloc, "basePath": place.path.rstrip("/") or "/", "schemes": [place.scheme]}


def _of_request(request: Request) -> dict[str, Any]:
    host = request.headers.get("host", "")
    scheme = "https" if request.headers.get("x-forwarded-proto") == "https" else "http"
    named = {"host": host} if _HOST.fullmatch(host) else {}
    return {**named, "basePath": REST_PREFIX, "schemes": [scheme]}
