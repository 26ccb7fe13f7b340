"""The stand-in of the driver's library, compiled and found by the real binding in processes of their own.

nvidia-ml-py opens "libnvidia-ml.so.1" by name, so LD_LIBRARY_PATH of a new process decides which one that is.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_name("stand_in_nvml.c")
UUID = "GPU-57a0d1a0-0000-0000-0000-000000000000"
REFUSE_PERSISTENCE, REFUSE_GRAPHICS, REFUSE_MEMORY, REFUSE_BACK = 1, 2, 4, 8


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def compile_library(folder: Path) -> Path:
    """Return the folder that holds libnvidia-ml.so.1."""
    command = [compiler(), "-shared", "-fPIC", "-O1", f"-Wl,-soname,{LIBRARY}", "-o", str(folder / LIBRARY), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@dataclass
class ImaginaryGpu:
    """The state of the one GPU, as the library keeps it in a file."""

    library: Path
    file: Path

    def set(self, persistence=0, graphics=0, memory=0, refuse=0):
        self.file.write_text(f"{persistence} {graphics} {memory} {refuse} 0 0\n")

    @property
    def now(self):
        """(persistence, graphics lock in MHz, memory lock in MHz)"""
        return tuple(int(word) for word in self.file.read_text().split()[:3])

    @property
    def changes(self):
        return int(self.file.read_text().split()[4])

    @property
    def unsaved(self):
        """Changes that were made while `saved` was not there."""
        return int(self.file.read_text().split()[5])

    def refuse(self, what):
        words = self.file.read_text().split()
        self.file.write_text(" ".join([*words[:3], str(what), *words[4:]]) + "\n")

    def environ(self, temporary: Path, saved: Path):
        return {**os.environ, "LD_LIBRARY_PATH": str(self.library), "STAND_IN_NVML": str(self.file), "STAND_IN_SAVED": str(saved),
                "TMPDIR": str(temporary)}
