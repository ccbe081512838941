"""Shipped and operators' event catalogues (docs/reference/webhooks.md, Event types)."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from dataapi.webhooks.catalogue import (
    BadEventType,
    Catalogue,
    CompiledSchema,
    PayloadIssue,
    sample_payload,
    sample_type,
)
from dataapi.webhooks.event_types import (
    EventType,
    Rendering,
    complete_payload,
    project_schema,
    schema_for_receivers,
)
from dataapi.webhooks.interfaces import IEventCatalogue
from dataapi.webhooks.plugins import combine_catalogues
from support.webhooks import MEMBER
from zope.interface import implementer

ROOT = Path(__file__).parents[3]
REF = "abcdefghijklmnopqrst"

MEMBERS: Mapping[str, set[str]] = {
    "v1.project.created": {"source"},
    "v1.project.paused": {"reason"},
    "v1.project.restored": set(),
    "v1.project.restarted": set(),
    "v1.project.removed": set(),
    "v1.project.transferred": {"source", "target"},
    "v1.project.status.changed": {"previous_status", "current_status"},
    "v1.project.backup.started": set(),
    "v1.project.branch.created": {"branch"},
    "v1.project.branch.updated": {"branch"},
    "v1.project.branch.removed": {"branch"},
    "v1.organization.member.invitation.created": {"member"},
    "v1.organization.member.invitation.canceled": {"member"},
    "v1.organization.member.added": {"member"},
    "v1.organization.member.removed": {"member"},
    "v1.organization.member.role.assigned": {"member"},
    "v1.organization.member.role.updated": {"member"},
    "v1.organization.member.role.removed": {"member"},
    "v1.organization.billing.plan.upgraded": {"billing"},
    "v1.organization.billing.plan.downgraded": {"billing"},
    **{
        f"v1.webhook.endpoint.{name}": {"endpoint", "failing_since"}
        for name in ("failing", "recovered", "disabled", "secret_rotated")
    },
}
"""The shipped event types, with the payload members that only some types have."""

OPERATORS_PLUGIN = """
from dataapi.webhooks.event_types import EventType, Rendering, project_schema
from dataapi.webhooks.interfaces import IEventCatalogue
from twisted.plugin import IPlugin
from zope.interface import implementer

def older(payload):
    return {"amount": int(payload["total"])}

SHOWN = {"organization_slug": "acme", "project_ref": "abcdefghijklmnopqrst", "actor": None}

@implementer(IPlugin, IEventCatalogue)
class Shop:
    def event_types(self):
        yield EventType(
            "v1.shop.sold", "Sold.", project_schema({"amount": {"type": "integer"}}), {**SHOWN, "amount": 3}
        )
        yield EventType(
            "v2.shop.sold", "Sold.", project_schema({"total": {"type": "string"}}), {**SHOWN, "total": "3"},
            Rendering("v1.shop.sold", older),
        )

shop = Shop()
"""

SOURCE_PLUGIN = """
from dataapi.webhooks.interfaces import IEventSource
from twisted.plugin import IPlugin
from zope.interface import implementer
from zope.interface.verify import verifyObject

@implementer(IPlugin, IEventSource)
class Bell:
    def start(self, publisher):
        pass

    def stop(self):
        pass

bell = Bell()
verifyObject(IEventSource, bell)
"""

PRINT_CATALOGUE = """
import json
from dataapi.webhooks.plugins import installed_catalogue, installed_sources
catalogue = installed_catalogue()
payload = {"organization_slug": "acme", "project_ref": None, "total": "7", "is_test": True}
print(json.dumps({
    "types": list(catalogue.types),
    "sources": [type(source).__name__ for source in installed_sources()],
    "versions": catalogue.versions(),
    "rendered": catalogue.render("v2.shop.sold", "v1.shop.sold", payload),
}))
"""


def installed(tmp_path: Path, **plugins: str) -> tuple[dict[str, Any], str]:
    tree = tmp_path / "product" / "dataapi"
    tree.mkdir(parents=True)
    for entry in (ROOT / "daemon" / "dataapi").iterdir():
        if not entry.name.startswith((".", "__pycache__")):
            (tree / entry.name).symlink_to(entry)
    shutil.copytree(
        ROOT / "plugins", tree / "plugins", ignore=shutil.ignore_patterns("dropin.cache", "__pycache__")
    )
    own = tmp_path / "operator" / "dataapi" / "plugins"
    own.mkdir(parents=True)
    for name, text in plugins.items():
        (own / f"{name}.py").write_text(text)
    path = os.pathsep.join([str(tree.parent), str(tmp_path / "operator")])
    script = "from twisted.logger import globalLogBeginner, textFileLogObserver\nimport sys\n"
    script += (
        "globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script + PRINT_CATALOGUE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_event_types_are_loaded_from_an_operators_folder(tmp_path: Path) -> None:
    loaded, _ = installed(tmp_path, shop=OPERATORS_PLUGIN)
    assert loaded["types"] == sorted([*MEMBERS, "v1.shop.sold", "v2.shop.sold"])
    assert loaded["versions"] == {"v2.shop.sold": ["v1.shop.sold"]}
    assert loaded["rendered"] == {
        "organization_slug": "acme",
        "project_ref": None,
        "is_test": True,
        "amount": 7,
    }


def test_event_sources_are_loaded_from_an_operators_folder(tmp_path: Path) -> None:
    loaded, _ = installed(tmp_path, shop=OPERATORS_PLUGIN, bell=SOURCE_PLUGIN)
    assert loaded["sources"] == ["Bell", "NotifyEvents"]
    assert "v1.shop.sold" in loaded["types"]


def test_broken_plugins_are_reported_and_others_are_loaded(tmp_path: Path) -> None:
    loaded, log = installed(
        tmp_path,
        unreadable="raise RuntimeError('cannot be imported')",
        raising=OPERATORS_PLUGIN.replace("yield EventType", "raise ValueError('no types today'); yield", 1),
        invalid=OPERATORS_PLUGIN.replace("v1.shop", "v1.bad")
        .replace("v2.shop", "v2.bad")
        .replace('"3"', "3"),
        shop=OPERATORS_PLUGIN,
    )
    assert loaded["types"] == sorted([*MEMBERS, "v1.shop.sold", "v2.shop.sold"])
    assert "cannot be imported" in log
    assert "no types today" in log
    assert "the example of v2.bad.sold is not valid" in log


@pytest.fixture(scope="module")
def platform() -> Catalogue:
    """Load the shipped catalogue from its file."""
    spec = importlib.util.spec_from_file_location("platform_events", ROOT / "plugins" / "platform_events.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Catalogue(module.platform_events.event_types())


@pytest.mark.parametrize("name", MEMBERS)
def test_shipped_types_have_a_valid_example_with_every_member(platform: Catalogue, name: str) -> None:
    example = platform.types[name].example
    assert set(example) == {"organization_slug", "project_ref", "actor", *MEMBERS[name]}
    assert (example["project_ref"] is None) is name.startswith(("v1.organization", "v1.webhook"))
    assert platform.issues(name, {**example, "is_test": True, "later": 1}) == ()
    for member in example:
        short = {key: value for key, value in example.items() if key != member}
        [issue] = platform.issues(name, short)
        assert member in issue.message


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("v1.project.paused", {"reason": "boredom"}),
        ("v1.project.paused", {"reason": None}),
        ("v1.project.paused", {"actor": {}}),
        ("v1.project.paused", {"actor": "somebody"}),
        ("v1.project.paused", {"project_ref": None}),
        ("v1.project.paused", {"project_ref": "short"}),
        ("v1.project.created", {"source": {"type": "copy", "project_ref": REF}}),
        ("v1.project.transferred", {"target": {}}),
        ("v1.project.branch.created", {"branch": {"ref": "a", "name": "b", "git_branch": "c"}}),
        ("v1.organization.member.added", {"project_ref": REF}),
        ("v1.organization.member.added", {"member": {**MEMBER, "user_id": None}}),
        ("v1.organization.member.added", {"member": {"user_id": "u", "role": MEMBER["role"]}}),
        ("v1.organization.member.role.updated", {"member": {**MEMBER, "role": {"name": "Owner"}}}),
        (
            "v1.organization.member.role.assigned",
            {"member": {**MEMBER, "role": {"name": "Developer", "projects": [{"ref": "short"}]}}},
        ),
        ("v1.organization.member.invitation.created", {"member": {"invitation": {"email": "a@b.example"}}}),
        ("v1.organization.member.invitation.canceled", {"member": {"email": "a@b.example"}}),
        ("v1.organization.billing.plan.upgraded", {"billing": {"plan": "huge"}}),
        ("v1.organization.billing.plan.downgraded", {"billing": "free"}),
        ("v1.project.status.changed", {"current_status": "ACTIVE"}),
        ("v1.project.status.changed", {"previous_status": None}),
    ],
)
def test_invalid_payloads_of_shipped_types_are_rejected(
    platform: Catalogue, name: str, change: Mapping[str, Any]
) -> None:
    assert platform.issues(name, {**platform.types[name].example, **change})


def test_nullable_members_may_be_null(platform: Catalogue) -> None:
    for name, member in (("v1.project.created", "source"), ("v1.project.paused", "actor")):
        assert platform.issues(name, {**platform.types[name].example, member: None}) == ()


@pytest.mark.parametrize("projects", [None, [], [{"ref": REF}], [{"ref": REF, "later": 1}]])
def test_role_is_valid_in_all_or_some_projects(platform: Catalogue, projects: Any) -> None:
    for name in ("added", "role.assigned", "role.updated", "role.removed"):
        event_type = f"v1.organization.member.{name}"
        payload = {"member": {**MEMBER, "role": {"name": "Developer", "projects": projects}}}
        assert platform.issues(event_type, {**platform.types[event_type].example, **payload}) == ()


KNOWN_VALUES = {
    ("v1.project.paused", "reason"): "api_request inactivity other",
    **dict.fromkeys(
        [("v1.project.status.changed", "previous_status"), ("v1.project.status.changed", "current_status")],
        "ACTIVE_HEALTHY ACTIVE_UNHEALTHY COMING_UP RESTARTING RESTORING RESTORE_FAILED PAUSING PAUSE_FAILED "
        "UPGRADING RESIZING GOING_DOWN INIT_FAILED INACTIVE REMOVED UNKNOWN",
    ),
    **dict.fromkeys(
        [(f"v1.organization.billing.plan.{name}", "billing/plan") for name in ("upgraded", "downgraded")],
        "free pro team enterprise",
    ),
}
"""Documented values by event type and payload member."""


def with_value(payload: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    name, _, rest = path.partition("/")
    return {**payload, name: with_value(payload[name], rest, value) if rest else value}


@pytest.mark.parametrize(("name", "path"), KNOWN_VALUES)
def test_only_documented_values_can_be_published(platform: Catalogue, name: str, path: str) -> None:
    example, documented = platform.types[name].example, KNOWN_VALUES[name, path].split()
    assert not any(platform.issues(name, with_value(example, path, value)) for value in documented)
    for value in ("", "SOMETHING_NEW", documented[0].swapcase(), None, 1):
        assert platform.issues(name, with_value(example, path, value))


@pytest.mark.parametrize(("name", "path"), KNOWN_VALUES)
def test_schema_for_receivers_accepts_unknown_values(platform: Catalogue, name: str, path: str) -> None:
    event_type = platform.types[name]
    schema = CompiledSchema(schema_for_receivers(event_type.schema))
    for value in (*KNOWN_VALUES[name, path].split(), "SOMETHING_NEW"):
        assert not list(schema.errors(with_value(event_type.example, path, value)))
    for wrong in (None, 1):
        assert list(schema.errors(with_value(event_type.example, path, wrong)))
    assert all(
        value in str(schema_for_receivers(event_type.schema)) for value in KNOWN_VALUES[name, path].split()
    )


def make_type(
    name: str = "v1.shop.sold",
    schema: Mapping[str, Any] | None = None,
    example: Mapping[str, Any] | None = None,
    renders: Rendering | None = None,
) -> EventType:
    shown = {"organization_slug": "acme", "project_ref": REF, "actor": None}
    return EventType(name, "Sold.", schema or project_schema(), example or shown, renders)


@implementer(IEventCatalogue)
class Listed:
    """A catalogue with the given types."""

    def __init__(self, *types: EventType) -> None:
        self._types = types

    def event_types(self) -> Iterable[EventType]:
        return self._types


def render_unchanged(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    return payload


@pytest.mark.parametrize(
    "wrong",
    [
        make_type("shop.sold"),
        make_type("v0.shop.sold"),
        make_type("v1.shop"),
        make_type("v1.Shop.sold"),
        make_type("v1.shop.sold\n"),
        make_type(schema={"type": "nonsense"}),
        make_type(schema={"$ref": "https://schemas.example.com/sold.json"}),
        make_type(example={"organization_slug": "acme"}),
        make_type(renders=Rendering("v1.shop.sold", render_unchanged)),
        make_type(renders=Rendering("v2.shop.sold", render_unchanged)),
        make_type("v2.shop.sold", renders=Rendering("sold", render_unchanged)),
        make_type("v2.shop.sold", renders=Rendering("v1.shop.sold", render_unchanged)),
    ],
)
def test_invalid_types_are_rejected(wrong: EventType) -> None:
    with pytest.raises(BadEventType):
        Catalogue([wrong])
    good = Listed(make_type("v1.shop.bought"))
    catalogue, problems = combine_catalogues([Listed(wrong), good])
    assert list(catalogue.types) == ["v1.shop.bought"]
    assert len(problems) == 1


def test_catalogue_with_a_duplicate_type_is_ignored() -> None:
    catalogue, problems = combine_catalogues(
        [Listed(make_type()), Listed(make_type(), make_type("v1.shop.bought"))]
    )
    assert list(catalogue.types) == ["v1.shop.sold"]
    assert problems == (f"{__name__}.Listed: duplicate event type",)


def test_rendering_cannot_change_members_set_by_the_service() -> None:
    forged = {"organization_slug": "other", "is_test": True, "total": 7}
    newer = make_type("v2.shop.sold", renders=Rendering("v1.shop.sold", lambda _: forged))
    rendered = Catalogue([make_type(), newer]).render(
        "v2.shop.sold", "v1.shop.sold", {"organization_slug": "acme", "project_ref": None}
    )
    assert rendered == {"organization_slug": "acme", "project_ref": None, "total": 7}


def test_catalogue_may_render_types_of_a_later_catalogue() -> None:
    newer = make_type("v2.shop.sold", renders=Rendering("v1.shop.sold", render_unchanged))
    catalogue, problems = combine_catalogues([Listed(newer), Listed(make_type())])
    assert (list(catalogue.types), problems) == (["v1.shop.sold", "v2.shop.sold"], ())


def test_older_versions_are_rendered_step_by_step() -> None:
    loose = {"type": "object"}

    def step(name: str) -> Rendering:
        return Rendering(name, lambda payload: {"seen": [*payload.get("seen", []), name]})

    catalogue = Catalogue(
        [
            make_type("v1.shop.sold", loose),
            make_type("v2.shop.sold", loose, renders=step("v1.shop.sold")),
            make_type("v3.shop.sold", loose, renders=step("v2.shop.sold")),
        ]
    )
    assert catalogue.versions() == {
        "v2.shop.sold": ("v1.shop.sold",),
        "v3.shop.sold": ("v2.shop.sold", "v1.shop.sold"),
    }
    assert catalogue.render("v3.shop.sold", "v1.shop.sold", {}) == {"seen": ["v2.shop.sold", "v1.shop.sold"]}
    for newer, older in (("v1.shop.sold", "v2.shop.sold"), ("v1.shop.sold", "v1.shop.sold"), ("x", "y")):
        with pytest.raises(KeyError):
            catalogue.render(newer, older, {})


def test_payload_issues_point_at_invalid_members() -> None:
    schema = project_schema({"lines": {"type": "array", "items": {"type": "integer"}}})
    example = {"organization_slug": "acme", "project_ref": REF, "actor": None, "lines": [1]}
    catalogue = Catalogue([make_type(schema=schema, example=example)])
    assert catalogue.issues("v1.shop.sold", {**example, "more": "is allowed"}) == ()
    assert catalogue.issues("v1.shop.sold", {**example, "lines": [1, "2"], "project_ref": None}) == (
        PayloadIssue("/project_ref", "None is not of type 'string'"),
        PayloadIssue("/lines/1", "'2' is not of type 'integer'"),
    )
    many = catalogue.issues("v1.shop.sold", {**example, "lines": ["x" * 5_000] * 100})
    assert len(many) == 20
    assert all(len(issue.message) <= 200 for issue in many)
    with pytest.raises(KeyError):
        catalogue.issues("v1.shop.unknown", {})


def test_only_known_types_and_the_wildcard_can_be_subscribed_to() -> None:
    catalogue = Catalogue([make_type()])
    assert catalogue.may_subscribe("*")
    assert catalogue.may_subscribe("v1.shop.sold")
    assert not catalogue.may_subscribe("v1.shop.*")


def test_test_event_has_the_first_concrete_type_by_default() -> None:
    assert sample_type(["*", "v1.b.c", "v1.a.b"], project=True) == "v1.b.c"
    assert sample_type(["*"], project=True) == "v1.project.paused"
    assert sample_type(["*"], project=False) == "v1.organization.member.added"


def test_test_event_is_the_example_with_the_endpoints_scope() -> None:
    own = "tsrqponmlkjihgfedcba"
    assert sample_payload(make_type(), "globex", own) == {
        "organization_slug": "globex",
        "project_ref": own,
        "actor": None,
        "is_test": True,
    }
    assert sample_payload(make_type(), "globex", None)["project_ref"] == REF
    of_organization = make_type(schema={}, example={"organization_slug": "acme", "project_ref": None})
    assert sample_payload(of_organization, "globex", own)["project_ref"] is None


def test_service_sets_organization_project_and_actor() -> None:
    payload = {"organization_slug": "forged", "reason": "other"}
    assert complete_payload(payload, "acme", REF) == {
        "organization_slug": "acme",
        "project_ref": REF,
        "actor": None,
        "reason": "other",
    }
    assert complete_payload({"actor": {"user_id": "u"}}, "acme", None)["actor"] == {"user_id": "u"}
