"""A child that runs the text that it is asked to run, and answers what that printed."""

import contextlib
import io
import os
import sys
import traceback

from tuner.tuning import wire


def run(request: dict) -> list[str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(request["code"], {"__name__": "code"})     # noqa: S102  what this child is for
        except Exception:
            raise wire.Failure(traceback.format_exc()[-1000:]) from None
    return said.getvalue().splitlines()


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    wire.serve({"run": run, "pid": lambda request: os.getpid()}, int(sys.argv[1]), int(sys.argv[2]))
