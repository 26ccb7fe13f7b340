"""Builds the library with the system's C compiler into a wheel for every Python 3 of this platform: it links no libpython."""

from __future__ import annotations

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

PACKAGE = "ridgepoint_agent_injection"


class PlainLibrary(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', '/')}.so"


class AnyPython(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(packages=[PACKAGE], package_dir={PACKAGE: "."},
      ext_modules=[Extension(f"{PACKAGE}.ridgepoint_injection", ["injection.c"], libraries=["dl", "pthread"],
                             extra_compile_args=["-fvisibility=hidden", "-Wall", "-Wextra"])],
      cmdclass={"build_ext": PlainLibrary, "bdist_wheel": AnyPython})
