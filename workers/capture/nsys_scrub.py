"""Takes what nsys notes of the machine out of an export. Standard library alone: a step after the program runs it.

    python nsys_scrub.py RAW.sqlite OUT.sqlite

A report holds the environment of every process that nsys could see, whatever it was started for: passwords of the worker and of
others among them. In the export they are texts with NUL between the variables, the session's own environment, and the program's.
The cleaned file takes its name only when that is done.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing

# table -> how to find a row that holds an environment
ENVIRONMENTS = {
    "StringIds": "instr(value, char(0)) > 0", "TARGET_INFO_SYSTEM_ENV": "name = 'DeviceEnvironment'",
    "META_DATA_CAPTURE": "name LIKE '%ENVIRONMENT_VARIABLE%'"}


def scrub(raw: str, out: str) -> int:
    """Empty every environment in `raw` and move it to `out`; return how many there were."""
    count = 0
    with closing(sqlite3.connect(raw)) as export:
        export.execute("PRAGMA secure_delete = ON")         # what is taken out is overwritten, not only unlinked
        tables = {name for name, in export.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table, condition in ENVIRONMENTS.items():
            if table in tables:
                count += export.execute(f"UPDATE {table} SET value = '' WHERE {condition}").rowcount
        export.commit()
    os.replace(raw, out)
    return count


if __name__ == "__main__":
    print(f"ridgepoint: {scrub(sys.argv[1], sys.argv[2])} environments of processes taken out of the export", flush=True)
