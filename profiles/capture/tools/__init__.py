"""The capture tools. A tool is one module of this package and one line here."""

from __future__ import annotations

from profiles.capture.tools import cutlass, ncu, nsys, proton, torch_profiler
from profiles.capture.tools.tool import CaptureTool

CAPTURE_TOOLS: dict[str, CaptureTool] = {tool.name: tool for tool in (        # name -> tool; the form offers the first
    ncu.TOOL,
    torch_profiler.TOOL,
    nsys.TOOL,
    proton.TOOL,
    cutlass.TOOL,
)}
