"""Candidates that need a GPU to be told apart: streams, faults of the device, a configuration that is known to win."""

from __future__ import annotations

from tests.gpu.cold import PINNING
from tests.tuner.candidates.files import CHANGED, CHEATS, DIFF, KERNEL, LAUNCH

SHAPE, DTYPE = {"R": 8192, "C": 4096}, "fp16"
BEST = {"STEPS": 3, "PER_SM": 32, "num_warps": 8, "ROWS": 1, "BLOCK": 0}         # recorded on an H200: 1.23 times the default
_STREAM = '''import torch

side = None


def launch(inputs, out, config):
    global side
    side = side or torch.cuda.Stream()
'''
# name → (text, configuration, the best known, verdicts, words of the reason)
GOOD = {
    "kernel": (KERNEL, None, None, ("FASTER", "SAME", "SLOWER"), "beside the default configuration"),
    "the operator's file, changed": (CHANGED, None, None, ("SAME", "FASTER"), "beside the default configuration"),
    "changed, with what is known to win": (CHANGED, BEST, None, ("FASTER",), "beside the default configuration"),
    "changed, beside what is known to win": (CHANGED, BEST, BEST, ("SAME", "FASTER"), "beside the best configuration known"),
    "torch": (LAUNCH, None, None, ("SLOWER",), "beside the default configuration"),
    "keeps its inputs in the cache": (PINNING, None, None, ("FASTER", "SAME", "SLOWER"), "beside the default configuration"),
    "two streams, joined": (_STREAM + '''    half = out.shape[0] // 2
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.softmax(inputs["x"][:half], -1, out=out[:half])
    torch.softmax(inputs["x"][half:], -1, out=out[half:])
    torch.cuda.current_stream().wait_stream(side)
''', None, None, ("FASTER", "SAME", "SLOWER"), "beside the default configuration"),
}
STREAMS = {
    "another stream that waits for nobody": (_STREAM + '''    with torch.cuda.stream(side):
        torch.softmax(inputs["x"], -1, out=out)
''', ""),
    "another stream that nobody waits for": (_STREAM + '''    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            torch.softmax(inputs["x"], -1, out=out)
''', ""),
    "right, with work left behind": (_STREAM + '''    torch.softmax(inputs["x"], -1, out=out)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            torch.softmax(inputs["x"], -1)
''', "work is left"),
    "changes the stream": (_STREAM + '''    torch.cuda.set_stream(side)
    torch.softmax(inputs["x"], -1, out=out)
''', "it changed the current stream"),
    "slows the others down": (_STREAM + '''    global busy
    torch.softmax(inputs["x"], -1, out=out)


busy = torch.empty(1 << 28, device="cuda")


def keep_busy():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        while True:
            busy.mul_(1.0)
            stream.synchronize()


import threading

threading.Thread(target=keep_busy, daemon=True).start()
''', ""),
    "replaces the events": (LAUNCH + '''

torch.cuda.Event.elapsed_time = lambda self, other: 0.001
''', "it replaced Event.elapsed_time"),
}
WRONG = {**{name: (text, words) for name, (text, words) in CHEATS.items() if name != "replaces the clock"}, **STREAMS}
FAULTS = {
    "illegal access": '''import triton
import triton.language as tl


@triton.jit
def write(at, n: tl.constexpr):
    tl.store(at + (1 << 40) + tl.arange(0, n), 1.0)


def launch(inputs, out, config):
    write[(64,)](out, 128)
''',
    "endless on the GPU": '''import triton
import triton.language as tl


@triton.jit
def turn(at):
    while tl.load(at, volatile=True) != 12345.0:
        pass


def launch(inputs, out, config):
    turn[(1,)](out)
''',
    "more memory than there is": '''import torch


def launch(inputs, out, config):
    torch.empty(1 << 50, device=out.device)
''',
}
__all__ = ["BEST", "DIFF", "DTYPE", "FAULTS", "GOOD", "SHAPE", "STREAMS", "WRONG"]
