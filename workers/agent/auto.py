"""Importing this starts the agent of the process. `ridgepoint_agent.pth` imports it where RIDGEPOINT_AGENT=1 is set."""

from __future__ import annotations

from workers.agent import job

job.start()
