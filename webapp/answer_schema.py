"""The API's answers in its OpenAPI schema: `responses=` of a view names the type that the code returns, once.

A type is a TypedDict or dataclass, a list or mapping of them, or several joined by `|`; msgspec tells its JSON Schema. mypy holds
the type to the code that makes the answer, tests/answers.py to what is sent.
"""

from __future__ import annotations

import json
import re
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, is_typeddict

import msgspec
from drf_spectacular.drainage import warn
from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent


def is_answer(kind: Any) -> bool:
    """Return whether `kind` is a type of this sort, and no serializer or name of a basic type."""
    return is_typeddict(kind) or is_dataclass(kind) or get_origin(kind) is not None


def json_schema(kind: Any, reference: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return a type's schema, and its parts by name; `reference`: how it names them, with {name}."""
    several = get_origin(kind) in (Union, UnionType)         # of objects msgspec takes one at a time
    schemas, parts = msgspec.json.schema_components(get_args(kind) if several else [kind], ref_template=reference)
    return {"anyOf": list(schemas)} if several else schemas[0], parts


class TypedSchema(AutoSchema):
    """How an operation is described."""

    def _get_response_bodies(self, direction: Any = "response") -> Any:
        kind = self.get_response_serializers()
        if is_answer(kind):
            return {"200": self._get_response_for_code(kind, "200")}
        return super()._get_response_bodies(direction)

    def _get_response_for_code(self, serializer: Any, status_code: str, media_types: Any = None,
                               direction: Any = "response") -> Any:
        answer = self.describe(serializer) if is_answer(serializer) else serializer
        return super()._get_response_for_code(          # type: ignore[no-untyped-call]    # spectacular has no types there
            answer, status_code, media_types, direction)

    def describe(self, kind: Any) -> Any:
        """Return the schema of a type; each part that has a name is listed once."""
        text = msgspec.json.encode(json_schema(kind, "#/components/schemas/{name}")).decode()
        schema, parts = json.loads(re.sub(r'(?<="#/components/schemas/)\w+', lambda match: listed_as(match[0]), text),
                                   object_hook=as_constant)
        for name, part in parts.items():
            component = ResolvedComponent(          # type: ignore[no-untyped-call]
                name=listed_as(name), type=ResolvedComponent.SCHEMA, object=name, schema=part)
            if component in self.registry and self.registry[component].schema != part:
                warn(f"two types are called {name}")
            self.registry.register_on_missing(component)
        return schema


def as_constant(said: dict[str, Any]) -> dict[str, Any]:
    """Return a Literal's schema as a constant: of an enum the generator makes a part of its own, and asks its type."""
    only = said.get("enum", ())
    return {"type": "string", "const": only[0]} if list(said) == ["enum"] and len(only) == 1 else said


class TypedFields(OpenApiSerializerFieldExtension):          # type: ignore[no-untyped-call]    # spectacular has no types there
    """How a serializer's column of JSON is described: by its type, as whole answers are."""

    target_class = "workers.list_api.Typed"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> Any:
        return auto_schema.describe(self.target.kind)


def listed_as(name: str) -> str:
    """Return how a type is listed: a dataclass of the house not by a name that a serializer may have too."""
    return name if name.endswith(("Json", "Document")) else f"{name}Data"
