"""Candidates of softmax and of a team's operators: good ones, wrong ones, ones that cheat, ones that mean harm."""

from __future__ import annotations

import difflib

from tuner.candidates.diffs import operator_files

SHAPE = {"R": 8, "C": 100}
OWN = operator_files("softmax")[0]

# a kernel with the name of the operator's, launched as the operator launches its own
KERNEL = '''import triton
import triton.language as tl


@triton.jit
def softmax_row(x, y, rows, cols, sx, sy, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    for r in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STEPS):
        i = tl.arange(0, BLOCK)
        m = i < cols
        v = tl.load(x + r * sx + i, mask=m, other=-float("inf")).to(tl.float32)
        v = tl.exp2((v - tl.max(v, 0)) * 1.4426950408889634)
        tl.store(y + r * sy + i, (v / tl.sum(v, 0)).to(y.dtype.element_ty), mask=m)
'''
# launch(inputs, out, config): whatever it likes, here torch
LAUNCH = '''import torch


def launch(inputs, out, config):
    torch.softmax(inputs["x"], -1, out=out)
'''
SUM = "v = tl.exp(v - tl.max(v, 0))\n        tl.store(y + r * sy + i, (v / tl.sum(v, 0))"
TOTAL = SUM.replace("tl.store", "total = tl.sum(v, 0)\n        tl.store").replace("/ tl.sum(v, 0)", "/ total")
CHANGED = OWN.text.replace(SUM, TOTAL)
DIFF = "".join(difflib.unified_diff(OWN.text.splitlines(True), CHANGED.splitlines(True), f"a/{OWN.path}", f"b/{OWN.path}"))
assert OWN.text != CHANGED

# each of these is WRONG, and the words say which check saw it
CHEATS = {
    "wrong": (LAUNCH + "    out.mul_(1.05)\n", "relative error"),
    "one element": (LAUNCH + "    out[0, :1].add_(1.0)\n", "worst element"),
    "writes nothing": ("def launch(inputs, out, config):\n    pass\n", "not finite"),
    "writes beyond its output": (LAUNCH + "    torch.as_strided(out, (4,), (1,), out.storage_offset() + out.numel()).fill_(1.0)\n",
                                 "it writes out of bounds: up to"),
    "changes its inputs": (LAUNCH + '    inputs["x"].add_(1.0)\n', "it changes its inputs: x"),
    "keeps results": ('''import torch

kept = {}


def launch(inputs, out, config):
    x = inputs["x"]
    key = x.data_ptr()
    if key not in kept:
        kept[key] = torch.softmax(x, -1)
    out.copy_(kept[key])
''', "relative error"),
    "keeps results while it is timed": ('''import torch

calls, kept = 0, None


def launch(inputs, out, config):
    global calls, kept
    calls += 1
    if calls > 9 and kept is not None:
        out.copy_(kept)
        return
    torch.softmax(inputs["x"], -1, out=out)
    kept = out.clone()
''', "wrong while it was timed"),
    "does nothing where it was right": ('''import torch

calls = 0


def launch(inputs, out, config):
    global calls
    calls += 1
    if calls <= 6 or calls % 2:
        torch.softmax(inputs["x"], -1, out=out)
''', "wrong while it was timed"),
    "replaces the clock": (LAUNCH + "\n\nimport time\n\ntime.perf_counter = lambda: 0.0\n", "it replaced time.perf_counter"),
    "replaces the comparison": (LAUNCH + '''

from tuner.tuning.measure import accuracy

accuracy.compare_output = lambda out, reference, tolerance: accuracy.Verdict(0.0, 0.0, 0, tolerance)
''', "it replaced"),
    "replaces the reference": (LAUNCH + '''

from tuner.tuning.kernels import rowwise

rowwise.Softmax.reference = lambda self: self.out.float()
''', "it replaced Softmax.reference"),
}
# each of these is FAILED
BROKEN = {
    "no Python": ("def launch(:\n", "it cannot be imported"),
    "nothing": ("x = 1\n", "neither launch(inputs, out, config)"),
    "raises": ("def launch(inputs, out, config):\n    raise RuntimeError('no')\n", "RuntimeError: no"),
    "asks for what is not there": ("import no_such_module\n", "No module named"),
    "exits": ("import os\nos._exit(0)\n", "its process"),
    "dies": ("import ctypes\nctypes.string_at(0)\n", "its process"),
}
HARM = {
    "fork": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
    "endless": "while True: pass\n",
    "memory": "held = []\nwhile True: held.append(bytearray(64 << 20))\n",
    "printing": "while True: print('x' * 100000)\n",
    "disk": "import os\nfor at in range(10**6):\n    open(f'/sandbox/{at}', 'wb').write(bytes(1 << 20))\n",
    "kill": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(1, signal.SIGKILL)\nos.killpg(0, signal.SIGKILL)\n",
}
