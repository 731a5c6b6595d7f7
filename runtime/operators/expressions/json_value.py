"""JSON_VALUE: one Python call per distinct text; paths as in Jayway's JsonPath, modes and behaviours as in Flink."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, NoReturn

from planner.ir.expressions import Call
from planner.ir.types import TypeRoot, to_arrow
from runtime.operators.expressions.arrow import pa, pc
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, UnsupportedExpression, Vector
from runtime.operators.expressions.dictionary_road import per_distinct
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.vectors import FALSE, constant

_MODE = re.compile(r"\s*(strict|lax)\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_STEP = re.compile(
    r"""\.([^.\[\]()*\s'"]++)(?![(])|\[\s*'((?:[^'\\]|\\.)*)'\s*\]|\[\s*"((?:[^"\\]|\\.)*)"\s*\]|\[\s*(-?\d+)\s*\]"""
)
_MANY = re.compile(r"""\.\.|\.\*|\[\s*\*\s*\]|\[[^\]]*[,:][^\]]*\]|\[\s*\?.*\]""", re.DOTALL)


class PathFailure(Exception):
    """The path is malformed or leads nowhere, or the text is no JSON."""


class _Many:
    """A path that may have several results: they are an array, never a scalar."""


MANY = _Many()
LENGTH = object()
"""The step `.length()`."""

Step = str | int | _Many | object


@lru_cache(maxsize=512)
def parse_path(text: str) -> tuple[bool, tuple[Step, ...] | None]:
    """(is lax, steps); steps are None for a malformed path. Without a mode the path is strict."""
    mode = _MODE.fullmatch(text)
    lax, path = (mode.group(1).lower() == "lax", mode.group(2).strip()) if mode else (False, text.strip())
    if not path:
        return lax, None
    if not path.startswith("$"):
        path = "$." + path
    steps: list[Step] = []
    position = 1
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            if path[position:] == ".length()":
                return lax, (*steps, LENGTH)
            return lax, ((*steps, MANY) if _MANY.match(path, position) else None)
        name, single, double, index = step.groups()
        quoted = single if single is not None else double
        steps.append(int(index) if index is not None else name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        position = step.end()
    return lax, tuple(steps)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)
_NO_VALUE = object()


def parse_json(text: str) -> Any:
    """The first JSON value of the text; what follows it is ignored, as Jackson does."""
    start = len(text) - len(text.lstrip(" \t\n\r"))
    try:
        return _DECODER.raw_decode(text, start)[0]
    except (ValueError, RecursionError) as error:
        raise PathFailure(str(error)) from error


def follow(value: Any, steps: tuple[Step, ...]) -> Any:
    """What the steps lead to; `_NO_VALUE` where a key or index is missing."""
    for step in steps:
        if isinstance(step, _Many):
            return []
        if step is LENGTH:
            return len(value) if isinstance(value, list | dict | str) else None
        if isinstance(step, int):
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return _NO_VALUE
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return _NO_VALUE
    return value


_EMPTY, _ERROR = "empty", "error"


def find(text: str, path: str) -> tuple[str | None, Any]:
    """(None, scalar), ("empty", None) or ("error", reason)."""
    lax, steps = parse_path(path)
    if steps is None:
        return _ERROR, f"malformed JSON path {path!r}"
    try:
        document = parse_json(text)
    except PathFailure as error:
        return (_EMPTY, None) if lax else (_ERROR, f"malformed JSON: {error}")
    if document is None:
        return _ERROR, "the JSON text is null"
    value = follow(document, steps)
    if lax:
        if value is None or value is _NO_VALUE or isinstance(value, list | dict):
            return _EMPTY, None
        return None, value
    if value is _NO_VALUE or value is None:
        return _ERROR, f"no value at path {path!r}"
    if isinstance(value, list | dict):
        return _ERROR, f"the value at path {path!r} is no scalar"
    return None, value


def _returned(value: Any, root: TypeRoot) -> Any:
    """The JSON scalar in the RETURNING type; another kind of scalar fails, whatever ON ERROR says (as in Flink)."""
    if root is TypeRoot.VARCHAR or root is TypeRoot.CHAR:
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else str(value)
    fits = {
        TypeRoot.BOOLEAN: isinstance(value, bool),
        TypeRoot.INTEGER: isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31,
        TypeRoot.DOUBLE: isinstance(value, Decimal),
    }[root]
    if not fits:
        raise EvaluationFailure(f"the JSON value {value!s} is no {root.value}")
    return float(value) if root is TypeRoot.DOUBLE else value


def _json_value(call: Call, context: EvaluationContext) -> Kernel:
    root, t = call.type.root, to_arrow(call.type)
    if root not in (TypeRoot.VARCHAR, TypeRoot.CHAR, TypeRoot.BOOLEAN, TypeRoot.INTEGER, TypeRoot.DOUBLE):
        raise UnsupportedExpression(f"JSON_VALUE cannot return {call.type.sql()}: STRING, BOOLEAN, INT or DOUBLE")
    behaviour = {_EMPTY: str(constant(call.args[2])), _ERROR: str(constant(call.args[4]))}

    def value_of(text: str, path: str) -> Any:
        outcome, value = find(text, path)
        if outcome is None:
            return _returned(value, root)
        if behaviour[outcome] == "ERROR":
            raise EvaluationFailure(value or f"nothing at path {path!r}")
        return None

    def outcome_of(text: str, path: str) -> str | None:
        outcome = find(text, path)[0]
        return outcome if outcome is not None and behaviour[outcome] == "DEFAULT" else None

    values, outcomes = per_distinct(value_of, t), per_distinct(outcome_of, pa.string())
    with_defaults = "DEFAULT" in behaviour.values()

    def kernel(
        text: Vector, path: Vector, on_empty: Vector, default_1: Vector, on_error: Vector, default_2: Vector
    ) -> Vector:
        result = values(text, path)
        if not with_defaults:
            return result
        outcome = outcomes(text, path)
        for name, default in ((_EMPTY, default_1), (_ERROR, default_2)):
            if behaviour[name] == "DEFAULT":
                applies = pc.fill_null(pc.equal(outcome, name), FALSE)
                typed = default if default.type == t else pc.cast(default, t)
                result = pc.if_else(applies, typed, result)
        return result

    return kernel


KERNELS: dict[str, Builder] = {"JSON_VALUE": _json_value}
