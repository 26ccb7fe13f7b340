"""A child that says what its process is like, and changes what a job could change for the next one."""

import os
import random
import subprocess
import sys

import numpy as np
import torch

from tuner.tuning import wire

OWN = ("TRITON_CACHE_DIR", "LC_CTYPE", "PYTEST_CURRENT_TEST")      # of each process, of Python's start, of each test


def look(request: dict) -> dict:
    cache = os.environ.get("TRITON_CACHE_DIR", "")
    return {
        "pid": os.getpid(), "cache": cache, "random": random.random(), "numpy": float(np.random.random()),
        "dtype": str(torch.get_default_dtype()), "threads": torch.get_num_threads(), "torch_seed": torch.initial_seed(),
        "deterministic": torch.backends.cudnn.deterministic, "attribute": hasattr(torch, "left_behind"),
        "tf32": torch.backends.cuda.matmul.allow_tf32, "folder": os.getcwd(), "path": "/left/behind" in sys.path,
        "left": "left_behind" in sys.modules, "files": os.path.exists(os.path.join(cache, "left_behind")),
        "cuda": torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork(), "group": os.getpgid(0) == os.getpid(),
        "variables": {name: value for name, value in os.environ.items() if name not in OWN}}


def change(request: dict) -> dict:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    torch.manual_seed(123)
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.left_behind = True
    sys.modules["left_behind"] = sys.modules[__name__]
    sys.path.insert(0, "/left/behind")
    os.environ["LEFT_BEHIND"] = "1"
    os.chdir("/")
    cache = os.environ["TRITON_CACHE_DIR"]
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "left_behind"), "w") as file:
        file.write("1")
    return {}


def start(request: dict) -> int:
    return subprocess.Popen(["sleep", "61.7"]).pid


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    wire.serve({"look": look, "change": change, "start": start}, int(sys.argv[1]), int(sys.argv[2]))
