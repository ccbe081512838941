"""The root of the REST API: what it has, described, or what a function of the database answers instead."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qsl

from dataapi.errors import ApiError
from dataapi.headers import CALLER
from dataapi.rest import refusals
from dataapi.rest.context import Context, Planned, Streamed
from dataapi.rest.functions import calling
from dataapi.rest.media import unavailable
from dataapi.rest.openapi.descriptions import Descriptions, Version
from dataapi.rest.openapi.place import with_place
from dataapi.rest.request.accept import Accepted, parse_accept
from dataapi.settings import Project
from dataapi.web.messages import Reply

PLAIN = "application/openapi+json"
REGISTERED = "application/vnd.oai.openapi+json"

_ANY = frozenset({"*/*", "application/*", "application/json"})
_ALLOW = ("Allow", "OPTIONS,GET,HEAD")
_CHARSET = "; charset=utf-8"


class Root:
    """Answers requests for the description of one project's REST API."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._descriptions = Descriptions(project)

    async def answer(self, context: Context) -> Reply:
        """Describe what the role may use of the schema.

        :raises ApiError: PGRST126 (404), descriptions are switched off; PGRST107 (406), none of the
            accepted forms is available; PGRST117 (405), the root cannot be written.
        """
        if self._project.openapi_mode == "disabled":
            raise ApiError(404, "PGRST126", "Root endpoint metadata is disabled")
        if context.request.method == "OPTIONS":
            return Reply(200, (_ALLOW,), b"")
        if not context.reading:
            raise refusals.unsupported(context.request.method, _ALLOW)
        media_type, version = negotiate(context.request.headers.get("accept"), context.request.query)
        description = await self._descriptions.get(
            context.catalog, context.caller.role, context.schema, version
        )
        headers = (("Content-Type", media_type), *context.profile, ("Vary", f"Accept, {CALLER}"))
        return Reply(200, headers, with_place(self._project, context.request, version, description))


def negotiate(accept: str | None, query: str) -> tuple[str, Version]:
    """Return the content type and the version of the description that a request asks for.

    ``?openapi=3.1`` goes before the versions in the header.

    :raises ApiError: PGRST107 (406) or PGRST100 (400), there is no such form or version.
    """
    asked = dict(parse_qsl(query)).get("openapi")
    if asked is not None and asked not in {version.value for version in Version}:
        raise ApiError(
            400, "PGRST100", f"There is no description in OpenAPI {asked}", hint="Ask for 2.0 or 3.1."
        )
    forms = parse_accept(accept or "*/*")
    for form in forms:
        version = _version(form)
        if version is not None:
            chosen = Version(asked) if asked else version
            return _content_type(form, chosen), chosen
    raise unavailable(form.name for form in forms)


def _version(form: Accepted) -> Version | None:
    """Return the version that a media range stands for, None where it stands for no description."""
    if form.name in _ANY:
        return Version.SWAGGER
    if form.name not in (PLAIN, REGISTERED):
        return None
    asked = form.parameter("version")
    if asked is None:
        return Version.SWAGGER
    # OpenAPI's third number only mends the text.
    return next((each for each in Version if asked == each.value or asked.startswith(f"{each.value}.")), None)


def _content_type(form: Accepted, version: Version) -> str:
    name = form.name if form.name in (PLAIN, REGISTERED) else PLAIN
    return f"{name}{'; version=3.1' if version is Version.OPENAPI else ''}{_CHARSET}"


def plan_function(context: Context, name: str) -> Planned | Streamed | Reply:
    """Plan a call of the function that answers instead (``db-root-spec``).

    :param name: the function's, in the request's schema or with its own before a period.
    :raises ApiError: whatever a call of it below ``/rpc/`` would raise.
    """
    schema, _, function = name.rpartition(".")
    request = context.request
    forms = parse_accept(request.headers.get("accept") or "*/*")
    described = bool(forms) and forms[0].name == PLAIN
    if described:
        request = replace(request, headers={**request.headers, "accept": "application/json"})
    call = replace(context, request=request, schema=schema or context.schema, target=function)
    planned = calling.plan(call)
    if not described or not isinstance(planned, Planned):
        return planned
    return replace(planned, finish=lambda row: _as_description(planned.finish(row)))


def _as_description(reply: Reply) -> Reply:
    headers = tuple(
        (name, PLAIN + _CHARSET if name == "Content-Type" and value.startswith("application/json") else value)
        for name, value in reply.headers
    )
    return replace(reply, headers=headers)
