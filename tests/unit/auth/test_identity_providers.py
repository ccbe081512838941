"""The configurations in docs/guides/sign-in.md accept tokens of their provider and reject other tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from dataapi.auth.authenticator import Authenticator
from dataapi.auth.keys import parse_keys
from dataapi.http.errors import TokenError
from dataapi.http.messages import Request
from dataapi.service.configuration import load
from support import documents

if TYPE_CHECKING:
    from pathlib import Path

    from dataapi.settings import Project

GUIDE = documents.read("docs/guides/sign-in.md")
PROVIDERS = {"Auth0": "authenticated", "Keycloak": "api_editor", "Supabase Auth": "authenticated"}
PROVIDERS["Firebase"] = "authenticated"
NOW = 1_700_000_000
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def example(provider: str, language: str) -> str:
    """Return a code block from the guide's chapter about a provider."""
    [text] = [
        block.text
        for block in documents.blocks(documents.chapter(GUIDE, provider))
        if block.language == language
    ]
    return text


@pytest.fixture
def project(provider: str, tmp_path: Path) -> Project:
    """Return a project with the guide's configuration for the provider."""
    file = tmp_path / "dataapi.ini"
    file.write_text(
        "[project]\ndb-uri = postgresql://authenticator@127.0.0.1/app\npublishable-keys = sb_publishable_1\n"
        + example(provider, "ini")
    )
    [project] = load(file, {}).projects
    return project


def role(project: Project, claims: dict[str, object]) -> str:
    """Return the role of a caller whose token the provider signed."""
    authenticator = Authenticator(project, lambda: NOW)
    public = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    authenticator.use_keys(parse_keys(json.dumps({"keys": [{**public, "kid": "1", "alg": "RS256"}]})))
    token = jwt.encode({**claims, "exp": NOW + 60}, KEY, "RS256", {"kid": "1"})
    headers = {"apikey": "sb_publishable_1", "authorization": f"Bearer {token}"}
    return authenticator.caller_of(Request("id", "GET", "/rest/v1/note", "", headers, b"")).role


@pytest.mark.parametrize("provider", PROVIDERS)
def test_provider_token_has_its_role(provider: str, project: Project) -> None:
    assert project.jwt_secret is not None
    assert project.jwt_secret.startswith("https://")
    assert role(project, json.loads(example(provider, "json"))) == PROVIDERS[provider]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_token_for_another_application_is_rejected(provider: str, project: Project) -> None:
    claims = json.loads(example(provider, "json"))
    with pytest.raises(TokenError):
        role(project, {**claims, "aud": "another"})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_token_without_a_role_claim_is_anonymous(provider: str, project: Project) -> None:
    """A missing claim must never lead to the role ``authenticated``."""
    claims = json.loads(example(provider, "json"))
    claims_without_role = {
        name: value for name, value in claims.items() if "role" not in name and name != "realm_access"
    }
    assert role(project, claims_without_role) == "anon"
