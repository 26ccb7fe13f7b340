"""Every JSON answer that a test is given is held to the type that its view names: types cannot say what is not so."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema_rs

from webapp.answer_schema import is_answer, json_schema


class CheckAnswers:
    """Raises AssertionError for an answer with a field that its type lacks, without one that it has, or of another type."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        answer = self.get_response(request)
        view = getattr(getattr(request.resolver_match, "func", None), "cls", None)
        if view is not None and is_json(answer):
            check = checker(view, request.method, answer.status_code)
            if check is not None and (wrong := next(check.iter_errors(json.loads(answer.content)), None)):
                path = "".join(f"[{key!r}]" for key in wrong.instance_path)
                raise AssertionError(f"{view.__qualname__} {request.method}: answer{path}: {wrong.message[:600]}")
        return answer


def is_json(answer: Any) -> bool:
    """Return whether an answer is JSON that a type describes: no table as a file, which may be JSON too."""
    return (not answer.streaming and bool(answer.content) and answer.get("Content-Type") == "application/json"
            and "Content-Disposition" not in answer)


@cache
def checker(view: type[Any], method: str, status: int) -> Any:
    """Return what checks a view's answers of this status; None where it names no type for them."""
    kinds = named_answers(view, method)
    named = kinds if isinstance(kinds, dict) else {200: kinds}
    kind = named.get(status, named.get((status, "application/json")))
    if not is_answer(kind):
        return None
    schema, parts = json_schema(kind, "#/$defs/{name}")
    return jsonschema_rs.Draft202012Validator(close({**schema, "$defs": parts}))


def named_answers(view: type[Any], method: str) -> Any:
    """Return what `extend_schema(responses=…)` says of a view's method; None where it says nothing."""
    described = getattr(getattr(view, method.lower(), None), "kwargs", {}).get("schema")
    if described is None:
        return None
    schema = described()
    schema.view, schema.method = view(request=None, kwargs={}), method
    return schema.get_response_serializers()


def close(schema: Any) -> Any:
    """Return a schema whose objects with named fields take no others."""
    if isinstance(schema, list):
        return [close(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: close(part) for name, part in schema.items()}
    named = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    return {**closed, "additionalProperties": False} if named else closed
