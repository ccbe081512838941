"""What the management API refuses, in the words of reference/webhooks.md section 1 ("Errors")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dataapi.errors import ApiError
from dataapi.webhooks.management.codes import ErrorCode, IssueCode


@dataclass(frozen=True, slots=True)
class Issue:
    """What is wrong with one part of a request.

    :ivar pointer: JSON pointer of a member of the body, or None.
    :ivar parameter: a query parameter, or None.
    """

    code: IssueCode
    message: str
    pointer: str | None = None
    parameter: str | None = None


class ManagementError(ApiError):
    """A refusal in the management API's own words.

    :ivar issues: everything that is wrong, when that may be several things.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        issues: Iterable[Issue] = (),
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(code.status, code.code, message, headers=headers)
        self.issues = tuple(issues)


def unauthorized(*, shown: bool) -> ManagementError:
    """Say that no token was shown, or none that is good now.

    :param shown: whether there was one in the form that is expected.
    """
    challenge = (("WWW-Authenticate", "Bearer"),)
    wanted = "A personal access token is needed: Authorization: Bearer dapat_..."
    unknown = "The personal access token is not known, has expired or was revoked"
    return ManagementError(ErrorCode.UNAUTHORIZED, unknown if shown else wanted, headers=challenge)


def permission_denied() -> ManagementError:
    """Say that the token lacks the permission or is another organization's, whether that exists or not."""
    return ManagementError(
        ErrorCode.PERMISSION_DENIED, "The token lacks the permission, or is not of this organization"
    )


def access_disabled() -> ManagementError:
    """Say that the organization is not on the early access allowlist."""
    return ManagementError(
        ErrorCode.ACCESS_DISABLED, "Webhooks are in early access, which the organization lacks"
    )


def invalid_slug() -> ManagementError:
    """Say that the organization's slug cannot be one."""
    return ManagementError(
        ErrorCode.INVALID_SLUG, "An organization's slug has letters, digits, hyphens and underscores"
    )


def invalid_ref() -> ManagementError:
    """Say that the project's reference cannot be one."""
    return ManagementError(ErrorCode.INVALID_REF, "A project's reference has 20 letters from a to z")


def invalid(*issues: Issue) -> ManagementError:
    """Say that the body or the query string is not as the operation takes it."""
    return ManagementError(ErrorCode.VALIDATION, "The request is not valid", issues=issues)


def invalid_url(message: str) -> ManagementError:
    """Say that the URL cannot be an endpoint's."""
    return _bad_url(ErrorCode.URL_INVALID, IssueCode.INVALID, message)


def reserved_address(message: str) -> ManagementError:
    """Say that the URL leads to an address that nothing is sent to."""
    return _bad_url(ErrorCode.URL_RESERVED, IssueCode.RESERVED_ADDRESS, message)


def unresolvable(message: str) -> ManagementError:
    """Say that the URL leads nowhere."""
    return _bad_url(ErrorCode.URL_UNRESOLVABLE, IssueCode.UNRESOLVABLE, message)


def _bad_url(code: ErrorCode, issue: IssueCode, message: str) -> ManagementError:
    return ManagementError(code, message, issues=(Issue(issue, message, "/data/attributes/url"),))


def test_disabled() -> ManagementError:
    """Say that the endpoint that is to be tested is disabled."""
    return ManagementError(ErrorCode.TEST_DISABLED, "The endpoint is disabled")


def retry_disabled() -> ManagementError:
    """Say that the endpoint of the deliveries that are to be retried is disabled."""
    return ManagementError(ErrorCode.RETRY_DISABLED, "The endpoint is disabled")


def wrong_event_type() -> ManagementError:
    """Say that the endpoint does not take events of the type that it is to be tested with."""
    return ManagementError(ErrorCode.TEST_WRONG_TYPE, "The endpoint does not subscribe to this type")


def no_endpoint() -> ManagementError:
    """Say that the scope has no such endpoint."""
    return ManagementError(ErrorCode.NO_ENDPOINT, "There is no such endpoint here")


def no_delivery() -> ManagementError:
    """Say that the scope has no such delivery, or has it no longer."""
    return ManagementError(ErrorCode.NO_DELIVERY, "There is no such delivery here")


def wrong_method(method: str, allowed: str) -> ManagementError:
    """Say that the path does not take the method."""
    return ManagementError(
        ErrorCode.WRONG_METHOD,
        f"The method {method[:20]} is not taken here",
        headers=(("Allow", allowed),),
    )


def too_many_endpoints(message: str) -> ManagementError:
    """Say that the scope is full."""
    return ManagementError(ErrorCode.TOO_MANY_ENDPOINTS, message)


def wrong_media_type() -> ManagementError:
    """Say that the body is of another kind than JSON."""
    return ManagementError(ErrorCode.WRONG_MEDIA_TYPE, "Send application/json or application/vnd.api+json")


def too_large(most: int) -> ManagementError:
    """Say that the body is too long."""
    return ManagementError(ErrorCode.TOO_LARGE, f"The request body is larger than {most} bytes")


def too_many_requests(seconds: int) -> ManagementError:
    """Say that the endpoint had its tests and retries of this minute.

    :param seconds: after which there is room again.
    """
    return ManagementError(
        ErrorCode.TOO_MANY_REQUESTS,
        "The endpoint had too many tests and retries within a minute",
        headers=(("Retry-After", str(seconds)),),
    )


def internal() -> ManagementError:
    """Say that something failed inside; the log says what."""
    return ManagementError(ErrorCode.INTERNAL, "Internal server error")


def not_now() -> ManagementError:
    """Say that the database is away, or lacks the schema."""
    return ManagementError(ErrorCode.UNAVAILABLE, "Webhooks do not work now", headers=(("Retry-After", "5"),))
