"""Builds the package alone: this folder as `workers.agent`, and the start file beside it in site-packages."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

START = "ridgepoint_agent.pth"


class WithStart(build_py):
    """A .pth file is read at every start of Python; setuptools has no word for it."""

    def run(self) -> None:
        super().run()
        self.copy_file(str(Path("deploy", START)), str(Path(self.build_lib, START)))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib, START))]


FOLDERS = {"workers.agent": ".", "workers.agent.cupti": "cupti", "workers.agent.deep": "deep"}
setup(packages=list(FOLDERS), package_dir=FOLDERS, cmdclass={"build_py": WithStart})
