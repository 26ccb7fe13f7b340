"""An order to measure a suite, checked before there is a row: which builds, with which configurations. No Django."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.trial import storable

MAX_BUILDS = 50                     # of one job
MAX_BUILD_NAME, MAX_CONFIG_CHARACTERS = 80, 2000


def builds_read(builds: Sequence[str | Mapping[str, Any]],
                known: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Builds as rows keep them, and what is wrong by field; `known`: the suite's enabled kernels by key."""
    if not 1 <= len(builds) <= MAX_BUILDS:
        return [], {"builds": f"name 1 to {MAX_BUILDS} builds"}
    found: dict[str, dict[str, Any]] = {}
    for each in builds:
        name, configs = (each, {}) if isinstance(each, str) else (each.get("build"), each.get("configs") or {})
        if problem := build_problem(name):
            return [], {"builds": problem}
        if name in found:
            return [], {"builds": f"{name} is named twice"}
        if problem := configs_problem(configs, known):
            return [], {"configs": problem}
        only = not isinstance(each, str) and bool(each.get("only")) and bool(configs)
        found[name] = {"build": name, **({"configs": {key: dict(config) for key, config in configs.items()}} if configs else {}),
                       **({"only": True} if only else {})}
    return list(found.values()), {}


def build_problem(name: Any) -> str | None:
    """Why this cannot be the name of a build."""
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        return "a build's name is text: a git sha or a name, without spaces around it"
    if len(name) > MAX_BUILD_NAME or not storable(name) or not name.isprintable():
        return f"a build's name has at most {MAX_BUILD_NAME} printable characters"
    return None


def configs_problem(configs: Any, known: Mapping[str, Any]) -> str | None:
    """Configurations come from people and CI: by key of a kernel of the suite, bounded, of plain values."""
    if not isinstance(configs, Mapping):
        return "configurations by key of the suite's kernel"
    for key, config in configs.items():
        if key not in known:
            return f"no enabled kernel {shown(key)}; choose among {', '.join(list(known)[:20])}"
        if not config_plain(config):
            return f"{shown(key)}: a configuration is parameters by name, each a number or a text"
    return None


def config_plain(config: Any) -> bool:
    if not isinstance(config, Mapping) or not config or len(config) > 64:
        return False
    names = all(isinstance(name, str) and storable(name) for name in config)
    return names and all(map(_plain_value, config.values())) and len(json.dumps(dict(config))) <= MAX_CONFIG_CHARACTERS


def _plain_value(value: Any) -> bool:
    if isinstance(value, str):
        return storable(value) and len(value) <= MAX_CONFIG_CHARACTERS
    if isinstance(value, bool):
        return True
    return (isinstance(value, int) and abs(value) < 2**53) or (isinstance(value, float) and math.isfinite(value))


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shown(text: Any) -> str:
    """Of what somebody sent: short, and of characters that every answer can hold."""
    return '"' + str(text)[:80].encode("ascii", "backslashreplace").decode() + '"'
