"""Stands for `sandbox_inside` on a host that lets no namespace be made."""

import sys

sys.stderr.write("unshare: Operation not permitted\n")
sys.exit(97)
