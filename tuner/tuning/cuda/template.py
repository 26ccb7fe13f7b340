"""Template parameters of a kernel, and the values that the file's launches and explicit instances give them."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.tuning.cuda.constants import evaluate
from tuner.tuning.cuda.directives import expand
from tuner.tuning.cuda.functions import TemplateParam
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.launches import Launch
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.tokens import close_angle, is_word, join, split_at_commas
from tuner.tuning.cuda.values import Values


def template_of(source: Source, item: Item, values: Values, own: Sequence[Launch]) -> tuple[TemplateParam, ...]:
    params: list[TemplateParam] = []
    for part in split_at_commas(expand(source.template_of(item), source.macros)):
        index = part.index("=") if "=" in part else len(part)
        declared = [word for word in part[:index] if word != "..."]
        if not declared:
            continue
        has_name = len(declared) > 1 and is_word(declared[-1])
        name = declared[-1] if has_name else f"_{len(params)}"
        params.append(TemplateParam(name, join(declared[:-1] if has_name else declared), join(part[index + 1 :])))
    choices: list[list[int | str]] = [[] for _ in params]
    for launch in own:
        for index, words in enumerate(launch.template[: len(params)]):
            value = _template_value(values, launch, params[index], list(words))
            if value is not None and value not in choices[index]:
                choices[index].append(value)
    for instance in _instances(source, item):
        for index, value_words in enumerate(instance[: len(params)]):
            number = evaluate(value_words, values.constant)
            value = (
                join(value_words)
                if params[index].is_type or not (params[index].is_number or params[index].is_flag)
                else int(number)
                if number is not None
                else None
            )
            if value is not None and value not in choices[index]:
                choices[index].append(value)
    for index, param in enumerate(params):
        if param.is_type:
            choices[index] += [kind for kind in _compared(source, item, param.name) if kind not in choices[index]]
    return tuple(
        TemplateParam(param.name, param.type, param.default, tuple(values)) for param, values in zip(params, choices, strict=True)
    )


def _template_value(values: Values, launch: Launch, param: TemplateParam, words: list[str]) -> int | str | None:
    if param.is_number or param.is_flag:
        number = values.number(launch.scope, words)
        return int(number.value) if number is not None and not number.is_size else None
    if len(words) == 1 and words[0] in values.template_parameters(launch.scope.item):
        for caller, argument in values.given(launch.scope, words[0]):
            if not any(word in values.template_parameters(caller.item) for word in argument):
                return join(argument)
        return None
    return None if any(word in values.template_parameters(launch.scope.item) for word in words) else join(words)


def _compared(source: Source, item: Item, name: str) -> list[str]:
    """Return the types that a kernel's own text compares a type with: `std::is_same<T, half>` is one that it is written for."""
    words, types = source.body_of(item), list[str]()
    for index, word in enumerate(words[:-2]):
        if word in ("is_same", "is_same_v") and words[index + 1] == "<" and words[index + 2] == name:
            closed = close_angle(words, index + 1, len(words))
            if closed > 0 and len(parts := split_at_commas(words[index + 2 : closed])) == 2:
                types.append(join(parts[1]))
    return types


def _instances(source: Source, item: Item) -> list[list[list[str]]]:
    """Return the template values of explicit instances: template __global__ void f<float, 128>(…)."""
    instances = []
    for instance in source.items:
        if instance.kind == "instance":
            words = source.words[instance.first : instance.last]
            for index in range(len(words) - 1):
                if words[index] == item.names[0] and words[index + 1] == "<":
                    depth, end = 0, index + 1
                    while end < len(words):
                        depth += (words[end] == "<") - (words[end] == ">")
                        if depth == 0:
                            break
                        end += 1
                    instances.append(split_at_commas(words[index + 2 : end]))
                    break
    return instances
