"""The OpenAPI description of the management API and its verification with Schemathesis."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.telemetry.version import installed_version
from dataapi.web.routes import make_app
from dataapi.webhooks import management
from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.management.api import OPERATIONS
from dataapi.webhooks.management.errors import ErrorCode
from dataapi.webhooks.management.openapi import description
from dataapi.webhooks.management.operations import ManagementOperation
from dataapi.webhooks.model import AttemptError, Permission, SkipReason
from dataapi.webhooks.plugins import installed_catalogue
from openapi_spec_validator import validate
from support.management import NO_SUCH, SCOPES, Management, managing
from support.webhooks import ACME, REF
from twisted.internet.utils import getProcessOutputAndValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dataapi.http.messages import Reply, Request
    from support.postgres import Database

SUPPORT = Path(__file__).parents[2]
SECONDS = os.environ.get("SCHEMATHESIS_SECONDS", "5")
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")
OPERATORS = (
    # A repeated idempotency key returns the stored response even if the resource has been deleted.
    *("--exclude-checks", "ensure_resource_availability"),
    "--include-path-regex",
    r"^/v2/organizations(/\{organization_slug\}(/(projects|tokens|portal-links)(/.*)?)?)?$",
)
CONFIGURATION = """
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "429", "5xx"]

[parameters]
"path.organization_slug" = "{slug}"
"path.project_ref" = "{ref}"

[[operations]]
include-path-regex = "/organizations/.*/deliveries/"
parameters = {{ "path.delivery_id" = "{of_organization}" }}

[[operations]]
include-path-regex = "/projects/.*/deliveries/"
parameters = {{ "path.delivery_id" = "{of_project}" }}
"""


@pytest.fixture
def api(database: Database, reactor: Any) -> Iterator[Management]:
    with managing(reactor, database) as service:
        yield service


def routes() -> set[str]:
    """Return the management API's URL rules from the application."""

    class Never:
        enabled = True
        portal_origins = ()

        async def handle(self, _request: Request, _path: str, _path_parameters: Mapping[str, str]) -> Reply:
            raise AssertionError

    rules = {rule.rule for rule in make_app((), Never()).url_map.iter_rules()}
    return {rule for rule in rules if rule.startswith(("/v1/", "/v2/"))}


def test_operations_table_contains_every_declared_operation() -> None:
    modules = [
        import_module(f"{management.__name__}.{one.name}") for one in iter_modules(management.__path__)
    ]
    declared = [
        value for one in modules for value in vars(one).values() if isinstance(value, ManagementOperation)
    ]
    assert {one.name for one in declared} == {one.name for one in OPERATIONS}
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)


async def test_operations_are_routed_authorized_validated_and_described(api: Management) -> None:
    described = description(OPERATIONS, api.catalogue, "1.0")["paths"]
    tokens = {
        missing: await api.new_token(permissions=[each for each in Permission if each is not missing])
        for missing in Permission
    }
    for one, path in [(operation, path) for operation in OPERATIONS for path in operation.paths]:
        case, shown = (one.name, path), described[path][one.method.lower()]
        assert str(one.status) in shown["responses"], case
        names = {each["name"] for each in shown["parameters"]}
        assert names >= {each.name for each in one.parameters}, case
        assert ("requestBody" in shown) == (one.body is not None), case
        if one.permission is None:
            assert shown["security"] == [], case
            continue
        assert ("an operator's token" if one.operator else one.permission) in shown["description"], case
        identifiers = dict.fromkeys(("endpoint_id", "delivery_id", "event_id", "token_id"), NO_SUCH)
        target = path.format(organization_slug=ACME.organization, project_ref=REF, **identifiers)
        assert one.method in (await api.send("OPTIONS", target)).headers["allow"], case
        for token, problem in ((None, "is required: Authorization: Bearer"), ("dapat_unknown", "is unknown")):
            response = await api.send(one.method, target, b"{", token=token)
            assert response.refusal == (401, "unauthorized"), case
            assert response.headers["www-authenticate"] == "Bearer", case
            assert f"personal access token {problem}" in response.body["error"]["message"], case
        wrong = api.token if one.operator else tokens[one.permission]
        refused = await api.send(one.method, target, b"{", token=wrong)
        assert refused.refusal == (403, "forbidden.permission_denied"), case
        right = api.operator if one.operator else api.token
        refusals = [await api.send(one.method, f"{target}?unknown=1", token=right)]
        if one.body is not None:
            refusals.append(await api.send(one.method, target, b"[]", token=right))
        assert {response.refusal for response in refusals} == {(400, "bad_request.validation")}, case


def test_description_lists_exactly_the_routed_operations() -> None:
    paths = description(OPERATIONS, installed_catalogue(), "1.0")["paths"]
    assert {re.sub(r"{(\w+)}", r"<\1>", path) for path in paths} == routes()
    described = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    assert described == {(path, one.method) for one in OPERATIONS for path in one.paths}


def test_operation_ids_are_unique() -> None:
    names = [shown["operationId"] for shown in _operations()]
    assert len(set(names)) == len(names) == sum(len(one.paths) for one in OPERATIONS)


def _operations() -> list[Any]:
    described = description(OPERATIONS, installed_catalogue(), "1.0")
    return [shown for methods in described["paths"].values() for shown in methods.values()]


@pytest.mark.parametrize("catalogue", [installed_catalogue(), Catalogue()], ids=["installed", "empty"])
def test_description_is_valid_openapi(catalogue: Catalogue) -> None:
    validate(description(OPERATIONS, catalogue, "1.0"))


def test_error_codes_are_described_with_their_meaning() -> None:
    described = description(OPERATIONS, installed_catalogue(), "1.0")
    codes = set()
    for methods in described["paths"].values():
        for shown in methods.values():
            for status, response in shown["responses"].items():
                if int(status) >= 400:
                    codes |= {(int(status), *one) for one in _codes(described, response)}
    declared_codes = {(one.status, one.code, one.meaning) for one in ErrorCode}
    assert codes == declared_codes - {(404, "not_found", ErrorCode.NOT_FOUND.meaning)}, (
        "no operation returns this code"
    )


def _codes(described: Any, response: Any) -> set[tuple[str, str]]:
    """Return the error codes of a response and their meanings."""
    if "$ref" in response:
        response = described["components"]["responses"][response["$ref"].rpartition("/")[2]]
    meanings = dict(re.findall(r"^- `([^`]+)`: (.*)$", response["description"], re.MULTILINE))
    _, own = response["content"]["application/json"]["schema"]["allOf"]
    assert list(meanings) == own["properties"]["error"]["properties"]["code"]["enum"]
    return set(meanings.items())


def test_delivery_errors_are_described() -> None:
    described = description(OPERATIONS, installed_catalogue(), "1.0")["components"]["schemas"]["delivery"]
    words = {str(word) for word in (*AttemptError, *SkipReason)}
    assert set(described["properties"]["attributes"]["properties"]["error"]["enum"]) == {*words, None}
    manual = (Path(__file__).parents[3] / "docs" / "reference" / "webhooks.md").read_text("utf-8")
    assert {word for word in words if f"`{word}`" not in manual} == set()


async def test_description_is_public(api: Management) -> None:
    response = await api.send("GET", "/v2/openapi.json", token=None)
    assert response.headers["content-type"].startswith("application/json")
    assert response.body == description(OPERATIONS, api.catalogue, installed_version())
    assert response.body["openapi"] == "3.1.0"


@pytest.mark.campaign
@pytest.mark.time_limit(float(SECONDS) + 300)
async def test_schemathesis_finds_no_problems(api: Management, reactor: Any, tmp_path: Path) -> None:
    """``SCHEMATHESIS_SECONDS`` and ``SCHEMATHESIS_SEED`` set the duration and the random seed."""
    deliveries = [await api.delivery(scope) for scope in SCOPES]
    configuration = CONFIGURATION.format(
        slug=ACME.organization, ref=REF, of_organization=deliveries[0], of_project=deliveries[1]
    )
    await _schemathesis(api, reactor, tmp_path, configuration, api.token, SECONDS)


@pytest.mark.campaign
@pytest.mark.time_limit(float(SECONDS) + 300)
async def test_schemathesis_finds_no_problems_with_an_operator_token(
    api: Management, reactor: Any, tmp_path: Path
) -> None:
    await _schemathesis(api, reactor, tmp_path, "", api.operator, SECONDS, *OPERATORS)


async def _schemathesis(
    api: Management, reactor: Any, folder: Path, configuration: str, token: str, seconds: str, *more: str
) -> None:
    (folder / "schemathesis.toml").write_text(configuration)
    words = [
        *("--config-file", str(folder / "schemathesis.toml"), "run", f"{api.url}/v2/openapi.json"),
        *("--header", f"Authorization: Bearer {token}", "--checks", "all", "--continue-on-failure"),
        *("--max-time", seconds, "--seed", SEED, "--no-color", *more),
    ]
    environ = {**os.environ, "SCHEMATHESIS_HOOKS": "support.schemathesis_hooks", "PYTHONPATH": str(SUPPORT)}
    program = str(Path(sys.executable).with_name("schemathesis"))
    output, errors, code = await getProcessOutputAndValue(program, words, environ, str(folder), reactor)
    assert code == 0, (output + errors).decode()
