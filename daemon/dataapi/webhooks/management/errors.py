"""Every error of the management API, with its status, code and message.

``/v2/openapi.json`` lists those of each operation, docs/webhooks.md all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeVar

from dataapi.http.errors import ApiError
from dataapi.webhooks.model import RefusalReason, Refused

T = TypeVar("T")


class ErrorCode(Enum):
    """Why a request is refused: the status, the code in the response, and its meaning."""

    def __init__(self, status: int, code: str, meaning: str) -> None:
        self.status = status
        self.code = code
        self.meaning = meaning

    BAD_REQUEST = 400, "bad_request", "The request is not valid HTTP, or its target cannot be read."
    INVALID_SLUG = (
        400,
        "bad_request.invalid_slug",
        "The organization's slug has other characters than letters, digits, hyphens and underscores.",
    )
    INVALID_REF = 400, "bad_request.invalid_ref", "The project's reference is not 20 letters from a to z."
    VALIDATION = (
        400,
        "bad_request.validation",
        "The body or the query string is not what the operation takes; `issues` says where.",
    )
    URL_INVALID = (
        400,
        "bad_request.endpoint.url.invalid",
        "The URL cannot be an endpoint's, for its syntax, scheme, host or port.",
    )
    URL_RESERVED = 400, "bad_request.endpoint.url.reserved_address", "The URL's host has a reserved address."
    URL_UNRESOLVABLE = (
        400,
        "bad_request.endpoint.url.unresolvable",
        "The URL's host has no address, or none was found in time.",
    )
    TEST_DISABLED = (
        400,
        "bad_request.endpoint.test.disabled",
        "The endpoint is disabled, so it gets no test event.",
    )
    TEST_WRONG_TYPE = (
        400,
        "bad_request.endpoint.test.wrong_event_type",
        "The endpoint does not subscribe to the test event's type.",
    )
    RETRY_DISABLED = (
        400,
        "bad_request.delivery.retry.disabled",
        "The endpoint is disabled, so nothing is sent to it again.",
    )
    UNAUTHORIZED = 401, "unauthorized", "There is no token, or it is unknown, has expired or was revoked."
    PERMISSION_DENIED = (
        403,
        "forbidden.permission_denied",
        "The token lacks the permission, is another organization's, or not of the kind that is needed.",
    )
    ACCESS_DISABLED = 403, "access_disabled", "The organization is not on the early access allowlist."
    NOT_FOUND = 404, "not_found", "There is no such path, or webhooks are off."
    NO_ORGANIZATION = 404, "not_found.organization", "There is no such organization."
    NO_PROJECT = 404, "not_found.project", "There is no such project, or another organization has it."
    NO_TOKEN = 404, "not_found.token", "The organization has no such token, or none that is still valid."
    NO_ENDPOINT = 404, "not_found.endpoint", "The scope has no such endpoint."
    NO_EVENT = 404, "not_found.event", "The scope has no such event, or does not have it any more."
    NO_DELIVERY = 404, "not_found.delivery", "The scope has no such delivery, or does not have it any more."
    WRONG_METHOD = (
        405,
        "method_not_allowed",
        "The path does not take the method; `Allow` has those that it takes.",
    )
    TOO_MANY_ENDPOINTS = 409, "conflict.endpoint.limit", "The scope has as many endpoints as it may have."
    ORGANIZATION_EXISTS = 409, "conflict.organization.exists", "There is an organization with that slug."
    PROJECT_EXISTS = 409, "conflict.project.exists", "There is a project with that reference."
    KEY_USED = (
        409,
        "conflict.idempotency_key.used",
        "The idempotency key came with another request within the last 24 hours.",
    )
    KEY_UNANSWERED = (
        409,
        "conflict.idempotency_key.unanswered",
        "The first request with the idempotency key is under way, or was interrupted: see what it did.",
    )
    TOO_LARGE = 413, "content_too_large", "The body is longer than 64 KiB; published events, than 1 MiB."
    TARGET_TOO_LONG = 414, "uri_too_long", "The path and query string are too long."
    WRONG_MEDIA_TYPE = 415, "unsupported_media_type", "The body is not JSON, by its `Content-Type`."
    TOO_MANY_REQUESTS = (
        429,
        "too_many_requests",
        "The endpoint had too many tests and retries within a minute; `Retry-After` says when to come back.",
    )
    HEADERS_TOO_LARGE = 431, "request_header_fields_too_large", "The headers are too long."
    INTERNAL = 500, "internal_server_error", "Something failed inside; the log says what."
    UNAVAILABLE = (
        503,
        "service_unavailable",
        "The database is away or lacks the schema, or the service is too busy or has no `encryption-key`.",
    )
    TIMEOUT = (
        504,
        "gateway_timeout",
        "The request took too long, or no connection to the database became free in time.",
    )


OTHER = "error"
"""The code of any other status."""

SURROUNDING = (
    ErrorCode.BAD_REQUEST,
    ErrorCode.NOT_FOUND,
    ErrorCode.WRONG_METHOD,
    ErrorCode.TOO_LARGE,
    ErrorCode.TARGET_TOO_LONG,
    ErrorCode.WRONG_MEDIA_TYPE,
    ErrorCode.HEADERS_TOO_LARGE,
    ErrorCode.INTERNAL,
    ErrorCode.UNAVAILABLE,
    ErrorCode.TIMEOUT,
)
"""What the server may respond before a request reaches this API, one code for each status."""


class IssueCode(StrEnum):
    """What is wrong with one part of a request."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> IssueCode:
        """Make a member that equals its word."""
        member = str.__new__(cls, word)
        member._value_, member.meaning = word, meaning
        return member

    CHARACTERS = "characters", "The text holds U+0000 or half a surrogate pair."
    DEPTH = "depth", "The body is nested too deep."
    FORMAT = "format", "The text is not of the form that is expected."
    HEADER = "header", "The custom header cannot be sent."
    INVALID = "invalid", "The value is not valid."
    JSON = "json", "The body is not JSON."
    LENGTH = "length", "The text, list or object is too long or too short."
    PARAMETER = "parameter", "The query parameter is unknown, there twice, or cannot be read."
    PAYLOAD = "payload", "The payload is not what the event type's schema says."
    REQUIRED = "required", "The member is missing."
    RESERVED = "reserved", "The name is the service's to write."
    RESERVED_ADDRESS = "reserved_address", "The host has a reserved address."
    TYPE = "type", "The value is of another type."
    UNKNOWN = "unknown", "There is no such member."
    UNRESOLVABLE = "unresolvable", "The host has no address."
    VALUE = "value", "The value is not one of those that are known."


@dataclass(frozen=True, slots=True)
class Issue:
    """What is wrong with a member of the body, by its JSON pointer, a query parameter or a header."""

    code: IssueCode
    message: str
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class ManagementError(ApiError):
    """An error of the management API.

    :param message: the code's meaning by default.
    :ivar issues: everything that is wrong with the request.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        *,
        issues: Iterable[Issue] = (),
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(code.status, code.code, message or code.meaning.removesuffix("."), headers=headers)
        self.issues = tuple(issues)


def invalid(*issues: Issue) -> ManagementError:
    """Return the error for an invalid body or query string."""
    return ManagementError(ErrorCode.VALIDATION, "The request is not valid", issues=issues)


def existing(found: T | None, absent: ErrorCode) -> T:
    """Return what was found; raise ``ManagementError`` with a code if there is nothing."""
    if found is None:
        raise ManagementError(absent)
    return found


def accepted(result: T | Refused, disabled: ErrorCode, absent: ErrorCode) -> T:
    """Return the result of a test, retry or recovery unless it was refused."""
    if not isinstance(result, Refused):
        return result
    if result.reason is RefusalReason.TOO_MANY:
        wait = (("Retry-After", str(result.retry_after)),)
        raise ManagementError(ErrorCode.TOO_MANY_REQUESTS, headers=wait)
    raise ManagementError(disabled if result.reason is RefusalReason.DISABLED else absent)
