"""Errors of the management API, with status, code and message.

``/v2/openapi.json`` lists the errors of each operation. docs/webhooks.md lists all errors.
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
    """Errors, each with its status, code and meaning."""

    def __init__(self, status: int, code: str, meaning: str) -> None:
        self.status = status
        self.code = code
        self.meaning = meaning

    BAD_REQUEST = 400, "bad_request", "The request is not valid HTTP, or its target is malformed."
    INVALID_SLUG = (
        400,
        "bad_request.invalid_slug",
        "A slug may contain only letters, digits, hyphens and underscores.",
    )
    INVALID_REF = (
        400,
        "bad_request.invalid_ref",
        "The project's reference must consist of 20 letters from a to z.",
    )
    VALIDATION = (
        400,
        "bad_request.validation",
        "The body or the query string is invalid. `issues` lists the errors.",
    )
    URL_INVALID = (
        400,
        "bad_request.endpoint.url.invalid",
        "The syntax, scheme, host or port of the URL is not allowed.",
    )
    URL_RESERVED = 400, "bad_request.endpoint.url.reserved_address", "The URL's host has a reserved address."
    URL_UNRESOLVABLE = (
        400,
        "bad_request.endpoint.url.unresolvable",
        "The URL's host has no address, or was not resolved in time.",
    )
    TEST_DISABLED = (
        400,
        "bad_request.endpoint.test.disabled",
        "The endpoint is disabled, so test events cannot be sent.",
    )
    TEST_WRONG_TYPE = (
        400,
        "bad_request.endpoint.test.wrong_event_type",
        "The endpoint is not subscribed to the type of the test event.",
    )
    RETRY_DISABLED = (
        400,
        "bad_request.delivery.retry.disabled",
        "The endpoint is disabled, so deliveries cannot be retried.",
    )
    UNAUTHORIZED = 401, "unauthorized", "The token is missing, unknown, expired or revoked."
    PERMISSION_DENIED = (
        403,
        "forbidden.permission_denied",
        "The token lacks the permission, belongs to another organization, or is of the wrong kind.",
    )
    ACCESS_DISABLED = 403, "access_disabled", "The organization is not on the early access allowlist."
    NOT_FOUND = 404, "not_found", "The path does not exist, or webhooks are disabled."
    NO_ORGANIZATION = 404, "not_found.organization", "The organization does not exist."
    NO_PROJECT = 404, "not_found.project", "The project does not exist, or belongs to another organization."
    NO_TOKEN = 404, "not_found.token", "The organization has no valid token with this identifier."
    NO_ENDPOINT = 404, "not_found.endpoint", "The endpoint does not exist in this organization or project."
    NO_EVENT = (
        404,
        "not_found.event",
        "The event has expired or does not exist in this organization or project.",
    )
    NO_DELIVERY = (
        404,
        "not_found.delivery",
        "The delivery has expired or does not exist in this organization or project.",
    )
    WRONG_METHOD = (
        405,
        "method_not_allowed",
        "The path does not support the method. `Allow` lists the supported methods.",
    )
    TOO_MANY_ENDPOINTS = (
        409,
        "conflict.endpoint.limit",
        "The organization or project has the maximum number of endpoints.",
    )
    ORGANIZATION_EXISTS = (
        409,
        "conflict.organization.exists",
        "An organization with this slug already exists.",
    )
    PROJECT_EXISTS = 409, "conflict.project.exists", "A project with this reference already exists."
    KEY_USED = (
        409,
        "conflict.idempotency_key.used",
        "The idempotency key was used with a different request within 24 hours.",
    )
    KEY_UNANSWERED = (
        409,
        "conflict.idempotency_key.unanswered",
        "The first request with the idempotency key is still running, or its outcome is unknown.",
    )
    TOO_LARGE = 413, "content_too_large", "The body is larger than 64 KiB, or 1 MiB for published events."
    TARGET_TOO_LONG = 414, "uri_too_long", "The path and query string are too long."
    WRONG_MEDIA_TYPE = 415, "unsupported_media_type", "The `Content-Type` of the body is not JSON."
    TOO_MANY_REQUESTS = (
        429,
        "too_many_requests",
        "The endpoint had too many tests and retries in a minute. Retry after the time in `Retry-After`.",
    )
    HEADERS_TOO_LARGE = 431, "request_header_fields_too_large", "The headers are too long."
    INTERNAL = 500, "internal_server_error", "An internal error. The log contains the details."
    UNAVAILABLE = (
        503,
        "service_unavailable",
        "The database is unavailable or lacks the schema, or the service is busy or has no `encryption-key`.",
    )
    TIMEOUT = (
        504,
        "gateway_timeout",
        "The request or the wait for a database connection took too long.",
    )


OTHER = "error"
"""Code of errors with a status that is not in ``COMMON_ERRORS``."""

COMMON_ERRORS = (
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
"""Errors that the server may return before a request reaches this API, one per status."""

_CODES = {error.status: error.code for error in COMMON_ERRORS}


class IssueCode(StrEnum):
    """Codes of errors in members, parameters and headers of a request."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> IssueCode:
        member = str.__new__(cls, word)
        member._value_, member.meaning = word, meaning
        return member

    CHARACTERS = "characters", "The text contains U+0000 or an unpaired surrogate."
    DEPTH = "depth", "The body is nested too deeply."
    FORMAT = "format", "The text does not have the expected format."
    HEADER = "header", "The custom header is not allowed."
    INVALID = "invalid", "The value is not valid."
    JSON = "json", "The body is not valid JSON."
    LENGTH = "length", "The text, list or object is too long or too short."
    PARAMETER = "parameter", "The query parameter is unknown, repeated or invalid."
    PAYLOAD = "payload", "The payload does not match the schema of the event type."
    REQUIRED = "required", "The body lacks a required member."
    RESERVED = "reserved", "Clients cannot set this member of the request body."
    RESERVED_ADDRESS = "reserved_address", "The host has a reserved address."
    TYPE = "type", "The value has the wrong type."
    UNKNOWN = "unknown", "The body contains an unknown member."
    UNRESOLVABLE = "unresolvable", "The host has no address."
    VALUE = "value", "The value is not allowed."


@dataclass(frozen=True, slots=True)
class Issue:
    """An error in a member of the body (by JSON pointer), a query parameter or a header."""

    code: IssueCode
    message: str
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class ManagementError(ApiError):
    """Raised when a request to the management API fails.

    The default message is the meaning of the code. ``issues`` are the errors in the request.
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


def common_code(status: int) -> str:
    return _CODES.get(status, OTHER)


def invalid(*issues: Issue) -> ManagementError:
    return ManagementError(ErrorCode.VALIDATION, "The request is not valid", issues=issues)


def require(value: T | None, absent: ErrorCode) -> T:
    if value is None:
        raise ManagementError(absent)
    return value


def require_accepted(result: T | Refused, disabled: ErrorCode, absent: ErrorCode) -> T:
    if not isinstance(result, Refused):
        return result
    if result.reason is RefusalReason.TOO_MANY:
        wait = (("Retry-After", str(result.retry_after)),)
        raise ManagementError(ErrorCode.TOO_MANY_REQUESTS, headers=wait)
    raise ManagementError(disabled if result.reason is RefusalReason.DISABLED else absent)
