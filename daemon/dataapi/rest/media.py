"""Which form of answer a client accepts; pure."""

from __future__ import annotations

from dataapi.errors import ApiError

JSON = "application/json; charset=utf-8"
OBJECT = "application/vnd.pgrst.object+json; charset=utf-8"

_ARRAYS = frozenset(
    {
        "*/*",
        "application/*",
        "application/json",
        "application/vnd.pgrst.array",
        "application/vnd.pgrst.array+json",
    }
)
_OBJECTS = frozenset({"application/vnd.pgrst.object", "application/vnd.pgrst.object+json"})


def wants_object(accept: str | None) -> bool:
    """Return whether the best of the accepted forms is a single object and not an array.

    :raises ApiError: PGRST107 (406), none of the accepted forms is available.
    """
    if accept is None:
        return False
    offers = sorted((_offer(part) for part in accept.split(",")), key=lambda offer: -offer[1])
    for form, weight in offers:
        if weight > 0 and form in _ARRAYS | _OBJECTS:
            return form in _OBJECTS
    raise ApiError(406, "PGRST107", f"None of these media types are available: {accept}")


def _offer(text: str) -> tuple[str, float]:
    """Return a media range and its weight; one with parameters that change the form is left as it is."""
    form, weight = [], 1.0
    for part in text.lower().split(";"):
        name, _, value = part.strip().partition("=")
        if name == "q":
            try:
                weight = float(value)
            except ValueError:
                weight = 0.0
        elif name != "charset":
            form.append(part.strip())
    return ";".join(form), weight
