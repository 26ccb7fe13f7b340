"""Whether a file is Python, asked before it is taken: in a process of its own, since a text may be made to harm its reader."""

from __future__ import annotations

import json
import subprocess
import sys

READ_S = 5.0
MEMORY_BYTES = 1 << 30
# Nothing of the file runs: it is taken apart, no more. Standard library alone, isolated.
_READ = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY_BYTES}, {MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({READ_S:.0f}, {READ_S:.0f}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import warnings
warnings.simplefilter("ignore")
said = {{}}
try:
    compile(sys.stdin.buffer.read().decode(), "candidate.py", "exec", dont_inherit=True)
except SyntaxError as error:
    said = {{"line": error.lineno, "what": error.msg}}
except ValueError as error:
    said = {{"line": None, "what": str(error)}}
print(json.dumps(said))
"""
TOO_MUCH = "reading it takes too much time or memory"


def why_no_python(text: str) -> str:
    """Return why the text is no Python, with the line; "" where it is."""
    try:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", _READ], input=text.encode(), capture_output=True, timeout=READ_S,
                              env={"LANG": "C.UTF-8"}, check=False)
    except subprocess.TimeoutExpired:
        return TOO_MUCH
    if done.returncode or not done.stdout:
        return TOO_MUCH
    said = json.loads(done.stdout)
    if not said:
        return ""
    place = f"line {said['line']}: " if said["line"] else ""
    return f"{place}{said['what']}"
