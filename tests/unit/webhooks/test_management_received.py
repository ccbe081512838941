"""The ``webhooks`` section of the OpenAPI document. Receivers can generate types from it."""

from __future__ import annotations

from typing import Any

from dataapi.webhooks.catalogue import Catalogue
from dataapi.webhooks.event_types import EventType, project_schema, row_change
from dataapi.webhooks.management.api import OPERATIONS
from dataapi.webhooks.management.openapi import description
from dataapi.webhooks.plugins import installed_catalogue
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

IDENTIFIER = "0190d6a2-7c1e-7000-8000-000000000000"


def _delivery(example: Any, event_type: str) -> dict[str, Any]:
    return {
        "id": IDENTIFIER,
        "type": event_type,
        "timestamp": "2026-03-01T12:00:00.000Z",
        "payload": dict(example),
    }


def _validator(document: Any, event_type: str) -> Draft202012Validator:
    [content] = document["webhooks"][event_type]["post"]["requestBody"]["content"].values()
    registry = Registry().with_resource("urn:api", DRAFT202012.create_resource(document))
    return Draft202012Validator({"$ref": f"urn:api{content['schema']['$ref']}"}, registry=registry)


def test_every_event_type_has_a_delivery_schema() -> None:
    catalogue = installed_catalogue(["v1.shop.order"])
    document = description(OPERATIONS, catalogue, "1.0")
    assert list(document["webhooks"]) == list(catalogue.types)
    for name, event_type in catalogue.types.items():
        validator = _validator(document, name)
        delivery = _delivery(event_type.example, name)
        assert validator.is_valid(delivery)
        assert validator.is_valid({**delivery, "added": "later"})
        assert not validator.is_valid({**delivery, "type": "v9.some.other"})
        assert not validator.is_valid({**delivery, "payload": {}})
        headers = [each["name"] for each in document["webhooks"][name]["post"]["parameters"]]
        assert headers == ["webhook-id", "webhook-timestamp", "webhook-signature"]


def test_receivers_accept_unknown_values_of_documented_sets() -> None:
    document = description(OPERATIONS, installed_catalogue(), "1.0")
    name = "v1.project.status.changed"
    delivery = _delivery(installed_catalogue().types[name].example, name)
    for value, valid in (("RESIZING", True), ("SOMETHING_NEW", True), (None, False)):
        payload = {**delivery["payload"], "current_status": value}
        assert _validator(document, name).is_valid({**delivery, "payload": payload}) is valid
    known, others = document["components"]["schemas"][f"{name}.payload"]["properties"]["current_status"][
        "anyOf"
    ]
    assert {"ACTIVE_HEALTHY", "UNKNOWN"} < set(known["enum"])
    assert others == {"type": "string"}


def test_references_within_an_embedded_schema_are_resolved() -> None:
    node = {"type": "object", "properties": {"of": {"$ref": "#/$defs/node"}, "$ref": {"type": "string"}}}
    schema = {
        **project_schema({"tree": {"$ref": "#/$defs/node"}, "kind": {"const": {"$ref": "#/$defs/node"}}}),
        "$defs": {"node": node},
    }
    example = {
        "organization_slug": "acme", "project_ref": "abcdefghijklmnopqrst", "actor": None,
        "tree": {"of": {"of": {"$ref": "a text"}}}, "kind": {"$ref": "#/$defs/node"},
    }  # fmt: skip
    tree = EventType("v1.shop.tree", "A tree grew.", schema, example)
    document = description(OPERATIONS, Catalogue([tree, row_change("v1.shop.row", "A row changed.")]), "1.0")
    OpenAPIV31SpecValidator(document).validate()
    validator = _validator(document, "v1.shop.tree")
    assert validator.is_valid(_delivery(example, "v1.shop.tree"))
    wrong = {**example, "tree": {"of": {"$ref": 1}}}
    assert not validator.is_valid(_delivery(wrong, "v1.shop.tree"))
