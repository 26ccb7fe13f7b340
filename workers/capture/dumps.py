"""Snapshots of memory asked for while a capture runs: the request goes into its folder, each file that comes becomes a profile.

The row says how many were asked for; the launcher in the program reads a number from a file (workers.capture.torch_memory).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from profiles.capture.result_services import Found, dump_store, results_find
from profiles.capture.services import publish_capture
from profiles.capture.tools.tool import CaptureTool
from profiles.capture.tools.torch_profiler import DUMP
from profiles.ingest.trace import TraceError
from profiles.models import Capture
from workers.capture.log import CaptureLog

log = logging.getLogger(__name__)
ASKED = "ridgepoint.dumps"      # as workers.capture.torch_memory reads it


class Dumps:
    """What was asked for of one running capture; `tend` is called a few times a second."""

    def __init__(self, capture: Capture, worker: str, tool: CaptureTool, folder: Path, text: CaptureLog, name: str) -> None:
        self._capture, self._worker, self._folder, self._text, self._name = capture, worker, folder, text, name
        self._results = [result for result in tool.results if result.name == DUMP]
        self._passed_on = 0

    def tend(self) -> None:
        """Pass on what the row asks for; take what was written. What cannot be taken now is taken when the capture ends."""
        if self._text.dumps_asked > self._passed_on:
            self._passed_on = self._text.dumps_asked
            part = self._folder / f"{ASKED}.part"
            part.write_text(str(self._passed_on))
            os.replace(part, self._folder / ASKED)
        for file in results_find(self._folder, self._results) if self._passed_on else ():
            self._take(file)

    def _take(self, found: Found) -> None:
        try:
            if dump_store(self._capture, self._worker, found, name=self._name):
                publish_capture(Capture.objects.get(pk=self._capture.pk))
        except TraceError as error:
            self._text.add(f"ridgepoint: {found.path.name} is not kept: {error.what}")
        found.path.unlink(missing_ok=True)
