"""A source distribution as pip finds it, downloaded and not opened: `python -I sdist.py NAME VERSION FOLDER`.

`pip download` would run the set-up of a source distribution to ask it what it needs. So pip's finder alone is asked, with the
configuration of this host (indexes, passwords, certificates, proxies) and pip's own connection; what comes is a file, its hash
looked at where the index tells one. It needs pip, and nothing of ours.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pip._internal.commands.download import DownloadCommand
from pip._internal.exceptions import HashMismatch
from pip._internal.network.utils import HEADERS, response_chunks
from pip._vendor.packaging.specifiers import SpecifierSet

KINDS = (".tar.gz", ".zip")


class Fetch(DownloadCommand):
    """`pip download` until a file is found, and no step further."""

    def run(self, options: Any, args: list[str]) -> int:
        """Write the file into the folder of `options`; return the exit status."""
        name, version = args[0].split("==")
        session = self.get_default_session(options)
        finder = self._build_package_finder(options=options, session=session)
        best = finder.find_best_candidate(name, SpecifierSet(f"=={version}")).best_candidate
        if best is None or best.link.is_wheel:
            return _fail(f"No source distribution found for {name}=={version}")
        kind = next((each for each in KINDS if best.link.filename.endswith(each)), "")
        if not kind:
            return _fail(f"{best.link.filename} is no .tar.gz and no .zip")
        path = Path(options.download_dir, f"source{kind}")
        response = session.get(best.link.url_without_fragment, headers=HEADERS, stream=True)
        response.raise_for_status()
        with path.open("wb") as file:
            file.writelines(response_chunks(response))
        try:
            if hashes := best.link.as_hashes():
                hashes.check_against_path(str(path))
        except HashMismatch:
            path.unlink()
            return _fail(f"{best.link.filename} is not what the index says: another hash")
        return 0


def _fail(why: str) -> int:
    print(f"ERROR: {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    asked, version_asked, folder = sys.argv[1:4]
    sys.exit(Fetch("download", "").main([
        "--no-deps", "--no-binary=:all:", "--no-cache-dir", "--no-input", "--quiet", "--disable-pip-version-check",
        "--dest", folder, f"{asked}=={version_asked}"]))
