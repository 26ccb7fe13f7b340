"""What a form shows of an edited space: parameters, constraints and the count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.base.refused import Refused
from tuner.spaces.edit import Edit, OwnSpace, count_edited, has_default, read_edit
from tuner.spaces.texts import edit_text

UNEDITED: dict[str, Any] = {"parameters": {}, "constraints": []}


def space_answer(own: OwnSpace, given: Any) -> dict[str, Any]:
    """Return the own space and the count of the edited one; `fields`: what is wrong with it, then nothing is counted."""
    answer: dict[str, Any] = {
        "operator": own.operator, "gpu": own.gpu, "names": sorted(own.names), "fixed": own.fixed, "fields": {}, "size": None,
        "valid": None, "whole": True, "left_out": [], "text": "", "space": None, "has_default": None, "unknown": own.unknown,
        "parameters": [{"name": param.name, "values": list(param.values), **_takes(own, param.name)} for param in own.params]}
    try:
        edit = read_edit(UNEDITED if given is None else given, own)
        if own.unknown:
            return answer
        return {**answer, **_counted(own, edit)}
    except Refused as refused:
        return {**answer, "fields": refused.fields}


def _takes(own: OwnSpace, name: str) -> dict[str, str]:
    """Return {"takes": what a parameter takes beside its own values, "" nothing}; {} where the operator does not say."""
    return {"takes": own.takes[name]} if name in own.takes else {}


def _counted(own: OwnSpace, edit: Edit) -> dict[str, Any]:
    counted = count_edited(own, edit)
    left_out: Mapping[str, int] = counted.left_out
    return {"size": counted.size, "valid": counted.valid, "whole": counted.whole, "space": edit.as_json() if edit else None,
            "left_out": [{"reason": reason, "count": count, "yours": reason in edit.constraints}
                         for reason, count in sorted(left_out.items(), key=lambda item: -item[1])],
            "text": edit_text(edit.as_json()) if edit else "", "has_default": has_default(own, edit)}
