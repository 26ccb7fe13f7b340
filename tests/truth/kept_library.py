"""The ready profiles of all files as one thing to keep (`tests.kept.folder`): what follows an ingest takes half a minute of CPU.

Other code of the product's readers, analyses, store and rows, or other files: all are made ready anew.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

from django.db import connection

from tests.kept.folder import PROJECT, cache_folder, digest_of, keep
from tests.truth.files import FILES

# what rows and objects come from, and how they are kept
CODE = ("profiles", "workers", "tuner/gate/builds", *(f"tests/truth/{name}.py" for name in ("files", "conftest", "kept_library")))
SCHEMA = ("*/migrations", "*/models.py", "*/*/models.py")
PACKAGES = ("Django", "numpy", "pyarrow", "msgspec", "ncu-report", "protobuf", "isal", "zstandard", "duckdb")
ROWS, STORE, SEQUENCES = "rows", "store", "sequences"
MOST_KEPT = 3                   # libraries, of the last states of the code: some 70 MB each
_EMPTY_BYTES = 21               # header and trailer of a COPY without rows
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname"
_SEQUENCES = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL"


def library_name() -> str:
    """Return a name for all that the library depends on."""
    code = [*(PROJECT / each for each in CODE), *(path for pattern in SCHEMA for path in PROJECT.glob(pattern))]
    files = zlib.crc32(repr([(each.name, zlib.crc32(each.path.read_bytes())) for each in FILES]).encode())
    return f"{digest_of(code, PACKAGES)}-{files:08x}"


def restore(store: Path) -> bool:
    """Fill an empty database and a store with what was kept; False where nothing was."""
    kept = cache_folder() / "libraries" / library_name()
    if not kept.exists():
        return False
    os.utime(kept)
    shutil.copytree(kept / STORE, store)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")        # rows come table by table, whatever refers to them
        cursor.execute(_TABLES)
        tables = [name for name, in cursor.fetchall()]
        cursor.execute(f"TRUNCATE {', '.join(tables)} CASCADE")
        for path in sorted((kept / ROWS).glob("*.copy")):
            with cursor.copy(f"COPY {path.stem} FROM STDIN (FORMAT binary)") as rows:
                rows.write(path.read_bytes())
        for name, value in (line.split() for line in (kept / SEQUENCES).read_text().splitlines()):
            cursor.execute("SELECT setval(%s, %s)", [name, int(value)])
        cursor.execute("SET session_replication_role = DEFAULT")
    return True


def keep_library(store: Path) -> None:
    """Keep the rows of the database and the objects of the store."""
    kept = keep("libraries", library_name(), _writer(store))
    libraries = sorted((path for path in kept.parent.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for old in libraries[:-MOST_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _writer(store: Path) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        shutil.copytree(store, folder / STORE)
        (folder / ROWS).mkdir()
        with connection.cursor() as cursor:
            cursor.execute(_TABLES)
            for table, in cursor.fetchall():
                with cursor.copy(f"COPY {table} TO STDOUT (FORMAT binary)") as rows:
                    content = b"".join(bytes(block) for block in rows)
                if len(content) > _EMPTY_BYTES:
                    (folder / ROWS / f"{table}.copy").write_bytes(content)
            cursor.execute(_SEQUENCES)
            (folder / SEQUENCES).write_text("".join(f"{name} {value}\n" for name, value in cursor.fetchall()))
    return write
