"""Starts two ranks as a worker does and is killed as one whose host runs out of memory. python launch_child.py LAUNCHER FOLDER"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from profiles.capture.tools.launchers import ProcessOptions, launch
from profiles.capture.tools.tool import Paths
from workers.capture.ranks import Ranks, find_launcher
from workers.core import reaper

launcher, folder = sys.argv[1:]
options = ProcessOptions(processes=2, launcher=launcher)
found = find_launcher(options, 0, os.environ)
paths = Paths(python=sys.executable, project=str(Path(__file__).parents[3]), folder=folder, launcher=found.words)
argv = launch(options, ["sh", "-c", "echo up; sleep 3600"], paths)
ranks = Ranks(Path(folder))
process = subprocess.Popen([sys.executable, reaper.__file__, f"{reaper.PATIENCE}5", *argv], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True, env={**os.environ, **found.environ}, start_new_session=True)
for _ in range(2):
    ranks.accept()
lines = []
while len(lines) < 2:
    line = process.stdout.readline()
    lines += [line] if line.startswith("[rank") else []
print("".join(sorted(lines)), end="", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
