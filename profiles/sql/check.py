"""What a query may be: one SELECT over the documented tables. Decided on DuckDB's own parse, never on the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import duckdb

TABLE_FUNCTIONS = frozenset({"unnest", "range", "generate_series", "json_each", "json_tree", "repeat", "regexp_split_to_table"})
# of settings, of other queries' texts, of files: a value that the query did not bring along
FUNCTIONS_REFUSED = frozenset({
    "getenv", "current_setting", "getvariable", "json_execute_serialized_sql", "json_deserialize_sql", "query", "query_table",
    "pg_sleep", "sleep_ms", "write_log", "nextval", "currval", "setval", "current_query", "pg_get_viewdef", "set_config"})
_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_SHOWN = frozenset({'"tables"', "tables", "__show_tables_expanded"})
_EXPLAIN = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b(?:\s+analyze\b)?(?:\s*\([^()]*\))?", re.IGNORECASE | re.DOTALL)
_NOWHERE = 2**63
_ONLY = "A query is one SELECT (or WITH, VALUES, DESCRIBE, SUMMARIZE, EXPLAIN of one)"


class Refused(Exception):
    """`position`: index of a character in the query where it is known."""

    def __init__(self, what: str, position: int | None = None) -> None:
        super().__init__(what)
        self.what, self.position = what, position


def check(connection: duckdb.DuckDBPyConnection, sql: str, tables: Iterable[str]) -> None:
    """Raises Refused or DuckDB's ParserException. `tables`: names that a query may read."""
    statements = connection.extract_statements(sql)
    if not statements:
        raise Refused("there is no query")
    if len(statements) > 1:
        raise Refused(f"{_ONLY}; here are {len(statements)} statements", len(statements[0].query.encode()))
    kind = statements[0].type.name
    text, skipped = sql, 0
    if kind == "EXPLAIN":
        explain = _EXPLAIN.match(sql)
        skipped = explain.end() if explain else 0
        text = sql[skipped:]
        kind = "+".join(each.type.name for each in connection.extract_statements(text))
    if kind != "SELECT":
        hint = " (PIVOT needs its values: ON column IN (…))" if kind == "MULTI" else ""
        raise Refused(f"{_ONLY}; {kind} is not available here{hint}", skipped)
    rows = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    try:
        parsed = json.loads(rows[0][0])
    except RecursionError:
        raise Refused("the query is nested too deeply") from None
    if parsed.get("error") or not parsed.get("statements"):
        raise Refused(f"{_ONLY}; this is not available here: {parsed.get('error_message', '')}")
    _walk_all(parsed, frozenset(name.lower() for name in tables), text, skipped)


def _walk_all(parsed: Any, tables: frozenset[str], text: str, skipped: int) -> None:
    for node, own in _dicts(parsed):
        try:
            _look(node, tables | own | _SHOWN)
        except Refused as refused:
            at = node.get("query_location", _NOWHERE)
            if isinstance(at, int) and at < _NOWHERE:       # bytes of UTF-8
                refused.position = skipped + len(text.encode()[:at].decode(errors="ignore"))
            raise


def _dicts(parsed: Any) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Every object of the parse with the names that WITH gives it, without recursion: nesting is the query's."""
    left: list[tuple[Any, frozenset[str]]] = [(parsed, frozenset())]
    while left:
        each, own = left.pop()
        if isinstance(each, dict):
            if isinstance(each.get("cte_map"), dict):
                own = own | {str(entry["key"]).lower() for entry in each["cte_map"].get("map", [])}
            yield each, own
            left.extend((value, own) for value in each.values())
        elif isinstance(each, list):
            left.extend((value, own) for value in each)


def _look(node: dict[str, Any], tables: frozenset[str]) -> None:
    kind = str(node.get("type"))
    if kind.endswith("_NODE") and kind not in _QUERIES:        # WITH x AS (COPY …) is a SELECT to the parser
        raise Refused(f"{_ONLY}; {kind.split('_')[0]} is not available here")
    path = [str(part) for part in (node.get("qualified_name") or {}).get("path", [])]
    if kind == "BASE_TABLE" or kind == "SHOW_REF":
        name = path[-1] if path else str(node.get("table_name", ""))
        schemas = [part.lower() for part in path[:-1]]
        if name and (name.lower() not in tables or any(each not in ("main", "memory", "recurring") for each in schemas)):
            raise Refused(f"there is no table {'.'.join(path) or name!r} here; the tables are {', '.join(sorted(tables - _SHOWN))}")
    elif kind == "TABLE_FUNCTION":
        name = str((node.get("function") or {}).get("function_name", "")).lower()
        if name not in TABLE_FUNCTIONS:
            raise Refused(f"{name} is not available here: a query reads the tables of its profiles only")
    elif "function_name" in node and str(node["function_name"]).lower() in FUNCTIONS_REFUSED:
        raise Refused(f"{node['function_name']} is not available here")
