"""The OpenAPI schema names the token scheme, and every page carries the strict policy."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator

pytestmark = pytest.mark.django_db
# "operation status" of answers whose type is still to be written: the list may only become shorter
UNTYPED: set[str] = set()
# what no type of ours can name: "component.field" whose content is another's document
FREE = {
    "AroundJson.detail", "SliceDetailJson.detail",          # arguments of a record, as the program that traced wrote them
    "ProfileDetail.metadata",                               # versions and settings that the file states
    "QueryChartJson.chart",                                 # a figure as Bokeh reads it
}
# reads whose answers grow with uploads, jobs, people or GPUs: all of them are asked for in pages
PAGED = {
    "advice_decisions", "builds", "candidates", "captures_list", "compare", "configs_imports", "configs_list", "configs_served",
    "configs_unverified", "engine_captures", "fleet_captures", "fleet_gpus", "fleet_regressions", "follows_list", "gates_list",
    "groups_list", "inbox_list", "invitations_list", "kernels_edits", "kernels_list", "own_kernels", "people_list",
    "profiles_counters", "profiles_kernel_shapes", "profiles_kernels", "profiles_list", "profiles_tables", "quarantine_list",
    "queue_get", "regressions", "runs_list", "share_links_list", "suite_jobs", "suites_list", "threads_list", "tune_list",
    "audit_list", "projects_members_list", "profiles_area_slices", "profiles_slices", "profiles_hits",
    "profiles_export_hits", "builds_series", "ceilings_list", "profiles_roofline", "rooflines"}


def test_the_schema_is_made_without_a_warning_and_knows_how_to_authenticate() -> None:
    GENERATOR_STATS.reset()
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    told = [*GENERATOR_STATS._warn_cache, *GENERATOR_STATS._error_cache]
    assert not told, told
    scheme = schema["components"]["securitySchemes"]["knoxApiToken"]
    assert scheme["in"] == "header" and scheme["name"] == "Authorization"
    assert {"/api/profiles/", "/api/tune/", "/api/workers/"} <= set(schema["paths"])
    assert paged_operations(schema) == PAGED
    assert untyped_answers(schema) == UNTYPED
    assert set(open_places(schema)) == FREE


def untyped_answers(schema: dict[str, Any]) -> set[str]:
    """Return answers of the schema that say no more than that they are JSON, as "operation status"."""
    return {f"{operation['operationId']} {status}" for path in schema["paths"].values() for operation in path.values()
            for status, answer in operation["responses"].items()
            if not says_more(schema, answer.get("content", {}).get("application/json", {}).get("schema"))}


def says_more(schema: dict[str, Any], said: Any) -> bool:
    """Return whether a schema names fields, or what a list or mapping is of; what is no JSON needs none."""
    if said is None or said.get("format") == "binary" or said.get("type") == "string":
        return True
    if "$ref" in said:
        return says_more(schema, schema["components"]["schemas"][said["$ref"].rpartition("/")[2]])
    if any(each in said for each in ("anyOf", "oneOf")):
        return all(says_more(schema, each) for each in said.get("anyOf", ()) or said["oneOf"])
    inner = said.get("items") or said.get("additionalProperties")
    return bool(said.get("properties")) or (isinstance(inner, dict) and bool(inner))


def open_places(schema: dict[str, Any]) -> Iterator[str]:
    """Yield where answers hold JSON that the schema says nothing about: an object without fields, a list without items."""
    parts, seen = schema["components"]["schemas"], set[str]()

    def walk(said: Any, at: str) -> Iterator[str]:
        if name := said.get("$ref", "").rpartition("/")[2]:
            if name not in seen:
                seen.add(name)
                yield from walk(parts[name], name)
            return
        inner = [(said[word], at) for word in ("items", "additionalProperties") if isinstance(said.get(word), dict)]
        inner += [(each, at) for word in ("anyOf", "oneOf", "allOf", "prefixItems") for each in said.get(word, ())]
        inner += [(each, f"{at}.{name}") for name, each in said.get("properties", {}).items()]
        if not inner and said.get("type") in (None, "object", "array") and not {"enum", "const"} & said.keys():
            yield at
        for each, place in inner:
            yield from walk(each, place)

    for path in schema["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                if said := answer.get("content", {}).get("application/json", {}).get("schema"):
                    yield from walk(said, f"{operation['operationId']} {status}")


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
