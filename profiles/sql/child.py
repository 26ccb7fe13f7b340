"""The process of one query: limits first, then DuckDB in memory behind walls, then the query. Started by `sql_process`.

Request on standard input: {"folder", "sql", "statements", "files", "targets", "tables", "rows", "bytes", "seconds",
"memory_bytes", "spill_bytes", "threads", "parent" (its process id)}. It writes result.arrow (an Arrow stream) in the folder and
prints {"rows", "bytes", "truncated", "walled"} or {"error", "position", "kind"}. It knows nothing of Django, the database or the
environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import duckdb
import pyarrow as pa

from profiles.sql import walls as sql_walls

# What a query may be: one SELECT over the documented tables. Decided on DuckDB's own parse, never on the text.

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
        kind = "+".join(statement.type.name for statement in connection.extract_statements(text))
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
            offset = node.get("query_location", _NOWHERE)
            if isinstance(offset, int) and offset < _NOWHERE:       # bytes of UTF-8
                refused.position = skipped + len(text.encode()[:offset].decode(errors="ignore"))
            raise


def _dicts(parsed: Any) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Every object of the parse with the names that WITH gives it, without recursion: nesting is the query's."""
    left: list[tuple[Any, frozenset[str]]] = [(parsed, frozenset())]
    while left:
        node, own = left.pop()
        if isinstance(node, dict):
            if isinstance(node.get("cte_map"), dict):
                own = own | {str(entry["key"]).lower() for entry in node["cte_map"].get("map", [])}
            yield node, own
            left.extend((value, own) for value in node.values())
        elif isinstance(node, list):
            left.extend((value, own) for value in node)


def _look(node: dict[str, Any], tables: frozenset[str]) -> None:
    kind = str(node.get("type"))
    if kind.endswith("_NODE") and kind not in _QUERIES:        # WITH x AS (COPY …) is a SELECT to the parser
        raise Refused(f"{_ONLY}; {kind.split('_')[0]} is not available here")
    path = [str(part) for part in (node.get("qualified_name") or {}).get("path", [])]
    if kind == "BASE_TABLE" or kind == "SHOW_REF":
        name = path[-1] if path else str(node.get("table_name", ""))
        schemas = [part.lower() for part in path[:-1]]
        if name and (name.lower() not in tables or any(schema not in ("main", "memory", "recurring") for schema in schemas)):
            raise Refused(f"there is no table {'.'.join(path) or name!r} here; the tables are {', '.join(sorted(tables - _SHOWN))}")
    elif kind == "TABLE_FUNCTION":
        name = str((node.get("function") or {}).get("function_name", "")).lower()
        if name not in TABLE_FUNCTIONS:
            raise Refused(f"{name} is not available here: a query reads the tables of its profiles only")
    elif "function_name" in node and str(node["function_name"]).lower() in FUNCTIONS_REFUSED:
        raise Refused(f"{node['function_name']} is not available here")


BATCH_ROWS = 2048               # DuckDB's own vector: the limits are looked at after each
_FILE_BYTES = 2 << 30
_AROUND_BYTES = 2 << 30         # address space beside DuckDB's memory limit: libraries, stacks, allocator arenas

_VALUE_BYTES = 8                # what a value counts at least towards the limit of bytes
_NESTED = frozenset({"list", "array", "struct", "map"})
_ODD = frozenset({"interval", "timestamp_ns", "bit", "bignum", "union", "enum"})


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    answer_to = os.dup(1)               # the answer alone goes there: DuckDB draws a progress bar after two seconds
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sql_walls.limit(request["memory_bytes"] + _AROUND_BYTES, int(request["seconds"] * request["threads"]) + 10, _FILE_BYTES,
                    request["parent"])
    os.chdir(request["folder"])
    try:
        answer = _run(request)
    except MemoryError:
        answer = {"error": "the query needs more memory than a query may have", "position": None, "kind": "memory"}
    os.write(answer_to, json.dumps(answer).encode())
    os._exit(0)                         # not a moment longer: destructors of a stopped query may take seconds


def _run(request: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    connection = _database(request)
    walled = sql_walls.close(request["targets"], request["folder"])
    try:
        for statement in request["statements"]:
            connection.execute(statement)
        connection.execute("SET lock_configuration = true")
        check(connection, request["sql"], request["tables"])
        return {**_stream(connection, request), "walled": walled}
    except Refused as error:
        return {"error": error.what, "position": error.position, "kind": "refused"}
    except duckdb.OutOfMemoryException as error:
        return {"error": _parse_error(error)[0].split("\n")[0], "position": None, "kind": "memory"}
    except duckdb.Error as error:
        what, position = _parse_error(error)
        if position is None:
            what, position = _plan_error(connection, request["sql"]) or (what, None)
        return {"error": what, "position": _characters(request["sql"], position), "kind": "query"}


def _database(request: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """In memory, nothing reachable but the files of the query, nothing that can be set afterwards."""
    os.makedirs("spill", exist_ok=True)
    connection = duckdb.connect(":memory:", config={
        "autoinstall_known_extensions": False, "autoload_known_extensions": False, "allow_community_extensions": False,
        "allow_unsigned_extensions": False, "python_enable_replacements": False, "errors_as_json": True,
        "threads": request["threads"], "async_threads": request["threads"],     # else four a core, each with a stack
        "memory_limit": f"{request['memory_bytes'] >> 20}MiB", "temp_directory": "spill",
        "max_temp_directory_size": f"{request['spill_bytes'] >> 20}MiB", "preserve_insertion_order": True,
        "extension_directory": "spill", "secret_directory": "spill", "allow_persistent_secrets": False,
    })
    names = ", ".join("'" + name.replace("'", "''") + "'" for name in request["files"])
    connection.execute(f"SET allowed_paths = [{names}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET enable_progress_bar = false")
    return connection


def _stream(connection: duckdb.DuckDBPyConnection, request: dict[str, Any]) -> dict[str, Any]:
    """Batches to result.arrow until a limit of rows or bytes is reached."""
    rows, size, truncated = 0, 0, False
    reader = _plain_types(connection.sql(request["sql"])).to_arrow_reader(BATCH_ROWS)
    with pa.OSFile("result.arrow", "wb") as file, pa.ipc.new_stream(file, reader.schema) as out:
        for batch in reader:
            left = request["rows"] - rows
            if batch.num_rows > left:
                truncated = True
                batch = batch.slice(0, left)
            size += max(batch.nbytes, _VALUE_BYTES * sum(map(_values, batch.columns)))
            if size > request["bytes"]:
                truncated = True
                break
            rows += batch.num_rows
            if batch.num_rows:
                out.write_batch(batch)
            if truncated:
                break
    return {"rows": rows, "bytes": size, "truncated": truncated}


def _plain_types(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Types that files and pages have no form for become DuckDB's text of them; so do enumerations, whose long words are
    stored once and shown in every row."""
    odd = [_is_odd(kind) for kind in relation.types]
    if not any(odd):
        return relation
    names = ['"' + name.replace('"', '""') + '"' for name in relation.columns]
    return relation.project(", ".join(f"CAST(#{position} AS VARCHAR) AS {name}" if is_odd else f"#{position} AS {name}"
                                      for position, (is_odd, name) in enumerate(zip(odd, names, strict=True), 1)))


def _is_odd(kind: Any, nested: bool = False) -> bool:
    name = str(kind.id)
    if name in _NESTED:
        return any(_is_odd(child, True) for _, child in kind.children if hasattr(child, "id"))
    return name in _ODD or (nested and name.startswith(("date", "time", "blob")))


def _values(array: pa.Array) -> int:
    """How many values JSON has to write: NULLs and booleans of a list are bits or less here, and words there."""
    if pa.types.is_struct(array.type):
        return len(array) + sum(map(_values, array.flatten()))
    if pa.types.is_map(array.type):
        return len(array) + _values(array.keys) + _values(array.items)
    return len(array) + _values(array.flatten()) if pa.types.is_nested(array.type) else len(array)


def _plan_error(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[str, int | None] | None:
    """The error of planning alone, where there is one: only execute() tells which byte it is about."""
    explained = f"EXPLAIN {sql}"
    with contextlib.suppress(duckdb.ParserException):
        connection.extract_statements(explained)
        try:
            connection.execute(explained).fetchall()
        except duckdb.Error as error:
            what, position = _parse_error(error)
            return what, None if position is None else position - len("EXPLAIN ")
    return None


def _parse_error(error: Exception) -> tuple[str, int | None]:
    """DuckDB's message as JSON (errors_as_json), with the byte it speaks of where it knows one."""
    text = str(error)
    with contextlib.suppress(ValueError, TypeError):
        details = json.loads(text[text.index("{"):])
        return str(details.get("exception_message", text)), int(details["position"]) if "position" in details else None
    return text, None


def _characters(sql: str, at_byte: int | None) -> int | None:
    return None if at_byte is None else len(sql.encode()[:at_byte].decode(errors="ignore"))
