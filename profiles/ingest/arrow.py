"""Keeps pandas out of this process.

pyarrow imports pandas, where it is installed (Bokeh needs it), at the first conversion, to recognise its objects: 0.14 s of every
process, for objects that Ridgepoint never makes. pyarrow asks once; that it was told no leaves later imports as they are.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

import pyarrow as pa


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("not asked for", name=name)
        return None


def keep_pandas_out() -> None:
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(_NoPandas)
