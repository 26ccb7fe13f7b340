"""How large the product is: tokens of Python, modules, bytes of templates. Lines deceive: how much stands on one differs.

    python -m tests.size [FOLDER …]
"""

from __future__ import annotations

import sys
import tokenize
from collections import defaultdict
from pathlib import Path

from tests.test_layers import OURS, ROOT

# comments, line ends and indents are no code; a docstring is one token, however long
NOT_COUNTED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
               tokenize.ENDMARKER}


def count_tokens(path: Path) -> int:
    """Return the number of Python's tokens in a file, as `tokenize` splits it, but for those of NOT_COUNTED."""
    with path.open("rb") as file:
        return sum(token.type not in NOT_COUNTED for token in tokenize.tokenize(file.readline))


def main(*folders: str) -> None:
    tokens, modules = defaultdict[str, int](int), defaultdict[str, int](int)
    for folder in folders or OURS:
        for path in (ROOT / folder).rglob("*.py"):
            if "migrations" not in path.parts:
                room = "/".join(path.relative_to(ROOT).parts[:2] if path.parent != ROOT / folder else (folder,))
                tokens[room] += count_tokens(path)
                modules[room] += path.name != "__init__.py"
    for room in sorted(tokens, key=lambda room: -tokens[room]):
        print(f"{tokens[room]:9,} tokens {modules[room]:5} modules  {room}")
    templates = sum(path.stat().st_size for path in (ROOT / "templates").rglob("*.html"))
    print(f"{sum(tokens.values()):9,} tokens {sum(modules.values()):5} modules; templates {templates / 1000:,.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
