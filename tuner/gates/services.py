"""What may be done to gates: the one front."""

from __future__ import annotations

from tuner.gates.control_services import gate_again, gate_stop
from tuner.gates.create_services import gate_create
from tuner.gates.decide_services import gate_advance, gate_published, gates_wake, runs_arrived
from tuner.gates.refusal_services import GateRefused

__all__ = ["GateRefused", "gate_advance", "gate_again", "gate_create", "gate_published", "gate_stop", "gates_wake", "runs_arrived"]
