"""The OpenAPI schema names the token scheme, and every page carries the strict policy."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator

pytestmark = pytest.mark.django_db
# reads whose answers grow with uploads, jobs, people or GPUs: all of them are asked for in pages
PAGED = {
    "advice_decisions", "builds", "candidates", "captures_list", "compare", "configs_imports", "configs_list", "configs_served",
    "configs_unverified", "engine_captures", "fleet_captures", "fleet_gpus", "fleet_regressions", "follows_list", "gates_list",
    "groups_list", "inbox_list", "invitations_list", "kernels_edits", "kernels_list", "own_kernels", "people_list",
    "profiles_counters", "profiles_kernel_shapes", "profiles_kernels", "profiles_list", "profiles_tables", "quarantine_list",
    "queue_get", "regressions", "runs_list", "share_links_list", "suite_jobs", "suites_list", "threads_list", "tune_list",
    "audit_list", "projects_members_list", "profiles_area_slices", "profiles_slices", "profiles_hits",
    "profiles_export_hits"}


def test_the_schema_is_made_without_a_warning_and_knows_how_to_authenticate() -> None:
    GENERATOR_STATS.reset()
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    told = [*GENERATOR_STATS._warn_cache, *GENERATOR_STATS._error_cache]
    assert not told, told
    scheme = schema["components"]["securitySchemes"]["knoxApiToken"]
    assert scheme["in"] == "header" and scheme["name"] == "Authorization"
    assert {"/api/profiles/", "/api/tune/", "/api/workers/"} <= set(schema["paths"])
    assert paged_operations(schema) == PAGED


def paged_operations(schema: dict[str, Any]) -> set[str]:
    reads = [path["get"] for path in schema["paths"].values() if "get" in path]
    return {each["operationId"] for each in reads
            if {"limit", "offset"} <= {given["name"] for given in each.get("parameters", ())}}


def test_schema_and_docs_are_served_without_inline_script(client: Client) -> None:
    assert client.get(reverse("api-schema")).status_code == 200
    docs = client.get(reverse("api-docs"))
    assert docs.status_code == 200
    assert b"<script>" not in docs.content and b"cdn.jsdelivr" not in docs.content


def test_the_policy_allows_no_inline_script_and_no_other_site(client: Client) -> None:
    policy = client.get(reverse("tokens"))["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";") if rule.strip())
    assert rules["script-src"] == "'self'" and rules["default-src"] == "'none'" and rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'" and rules["form-action"] == "'self'"
