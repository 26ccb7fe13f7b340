"""Single sign-on by OpenID Connect: what the environment says, and which roles a person's groups give. Plain Python.

RIDGEPOINT_OIDC_ISSUER         address of the provider; its /.well-known/openid-configuration is read at each sign-in
RIDGEPOINT_OIDC_CLIENT_ID      as registered there, with the return address https://…/accounts/oidc/sso/login/callback/
RIDGEPOINT_OIDC_CLIENT_SECRET
RIDGEPOINT_OIDC_NAME           what the button says (default: the provider's host)
RIDGEPOINT_OIDC_SCOPES         default "openid profile email"
RIDGEPOINT_OIDC_GROUPS         the claim that lists groups (default "groups"; realm_access.roles for one within another)
RIDGEPOINT_OIDC_ROLES          group=role or group=project:role, with commas; * is everybody:
                               "gpu-leads=owner, gpu=llm:engineer, *=viewer"
RIDGEPOINT_OIDC_LINK           1: who signs in with a verified e-mail address of an account here gets that account
RIDGEPOINT_OIDC_ONLY           1: passwords are for superusers alone
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

EVERYBODY = "*"
MOST_GROUPS = 1000              # of one person


@dataclass(frozen=True)
class Grants:
    """What groups give: a role in the installation ("" none), and one in each of some projects (by slug)."""

    role: str = ""
    projects: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.role or self.projects)


@dataclass(frozen=True)
class Provider:
    """One OpenID Connect provider. `rules`: (group, project or "", role)."""

    issuer: str
    client_id: str
    secret: str
    name: str
    scopes: tuple[str, ...]
    groups_claim: str
    rules: tuple[tuple[str, str, str], ...]
    link: bool
    only: bool

    def grants(self, groups: Iterable[str], order: tuple[str, ...]) -> Grants:
        """Return what these groups give; of several roles the highest, `order` from the lowest to the highest."""
        mine, role, projects = {EVERYBODY, *groups}, "", dict[str, str]()
        for group, project, grant in self.rules:
            if group not in mine:
                continue
            before = projects.get(project, "") if project else role
            higher = max(before, grant, key=lambda one: order.index(one) if one in order else -1)
            if project:
                projects[project] = higher
            else:
                role = higher
        return Grants(role, projects)

    def groups_of(self, claims: Mapping[str, Any]) -> list[str]:
        """Return the groups that claims list; a single text counts as one."""
        claim: Any = claims
        for name in self.groups_claim.split("."):
            claim = claim.get(name) if isinstance(claim, Mapping) else None
        listed = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
        return [group.removeprefix("/") for group in listed[:MOST_GROUPS] if isinstance(group, str)]


def read(env: Mapping[str, str], roles: Iterable[str]) -> Provider | None:
    """Return the provider that the environment names; None without one. Raises ValueError with what would be right."""
    issuer = env.get("RIDGEPOINT_OIDC_ISSUER", "").strip().rstrip("/")
    if not issuer:
        return None
    host = urlsplit(issuer).hostname
    if urlsplit(issuer).scheme not in ("http", "https") or not host:
        raise ValueError(f"RIDGEPOINT_OIDC_ISSUER: an address like https://sso.example/realms/main, not {issuer[:100]!r}")
    client, secret = env.get("RIDGEPOINT_OIDC_CLIENT_ID", ""), env.get("RIDGEPOINT_OIDC_CLIENT_SECRET", "")
    if not client or not secret:
        raise ValueError("RIDGEPOINT_OIDC_CLIENT_ID and RIDGEPOINT_OIDC_CLIENT_SECRET: as registered with the provider")
    scopes = tuple(env.get("RIDGEPOINT_OIDC_SCOPES", "openid profile email").split())
    return Provider(issuer, client, secret, env.get("RIDGEPOINT_OIDC_NAME") or host, scopes,
                    env.get("RIDGEPOINT_OIDC_GROUPS") or "groups", _rules(env.get("RIDGEPOINT_OIDC_ROLES", ""), tuple(roles)),
                    env.get("RIDGEPOINT_OIDC_LINK") == "1", env.get("RIDGEPOINT_OIDC_ONLY") == "1")


def _rules(text: str, roles: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    rules = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        group, equals, grant = part.rpartition("=")
        project, _, role = grant.strip().rpartition(":")
        if not equals or not group.strip() or role not in roles:
            raise ValueError(f"RIDGEPOINT_OIDC_ROLES: {part!r} is none; like “gpu-leads=owner”, “gpu=llm:engineer”, “*=viewer”, "
                             f"of {', '.join(roles)}")
        rules.append((group.strip(), project, role))
    if not rules:
        raise ValueError("RIDGEPOINT_OIDC_ROLES: say which group has which role; “*=viewer” lets everybody read")
    return tuple(rules)


def provider_settings(provider: Provider | None) -> dict[str, Any]:
    """Return the setting SOCIALACCOUNT_PROVIDERS of django-allauth."""
    if provider is None:
        return {}
    app = {"provider_id": "sso", "name": provider.name, "client_id": provider.client_id, "secret": provider.secret,
           "settings": {"server_url": provider.issuer, "scope": list(provider.scopes)}}
    return {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
