"""Names and options of commands stand in any order."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError


@pytest.mark.parametrize(("words", "meant"), [
    ("operators check FILE --json", {"do": "check", "what": "FILE", "json": True}),
    ("operators check --json FILE", {"do": "check", "what": "FILE", "json": True}),
    ("operators --json check --dtype bf16 FILE", {"do": "check", "what": "FILE", "json": True, "dtype": "bf16"}),
    ("operators --json", {"do": "list", "what": "", "json": True}),
    ("source 5 --json 3", {"profile": 5, "launch": 3, "json": True}),
    ("analyse 1 --json memory time", {"profile": 1, "topics": ["memory", "time"], "json": True}),
    ("analyse --json 1", {"profile": 1, "topics": [], "json": True}),
    ("ingest --json a.json --build b1 b.json --project x", {"files": ["a.json", "b.json"], "build": "b1", "project": "x"}),
    ("configs best matmul --gpu H200 M=1 N=2", {"operator": "matmul", "shape": ["M=1", "N=2"], "gpu": "H200"}),
    ("capture schedule --server S pause night", {"do": "pause", "name": "night", "server": "S"}),
    ("tune group night --effort quick A:bf16:M=1", {"shapes": ["A:bf16:M=1"], "effort": "quick"}),
])
def test_names_and_options_are_mixed(words: str, meant: dict[str, Any]) -> None:
    name, *rest = words.split()
    command = load_command_class(get_commands()[name], name)
    parsed = vars(command.create_parser("manage.py", name).parse_args(rest))
    assert {key: parsed[key] for key in meant} == meant


@pytest.mark.parametrize("words", ["operators check A B", "source --json", "operators fetch A"])
def test_what_is_too_much_or_missing_is_still_refused(words: str) -> None:
    name, *rest = words.split()
    command = load_command_class(get_commands()[name], name)
    with pytest.raises(CommandError):
        command.create_parser("manage.py", name).parse_args(rest)
