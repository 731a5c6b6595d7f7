"""REGEXP_EXTRACT and REGEXP_REPLACE: one Python call per distinct text, with Java's meaning of the pattern."""

from __future__ import annotations

import re

from planner.ir.expressions import Call
from runtime.operators.expressions.arrow import pa
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, UnsupportedExpression
from runtime.operators.expressions.dictionary_road import per_distinct
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.java_regex import UnsupportedPattern, compile_java
from runtime.operators.expressions.vectors import constant


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for a malformed pattern: these functions answer NULL then."""
    try:
        return compile_java(pattern)
    except UnsupportedPattern:
        raise
    except (re.error, EvaluationFailure, OverflowError, RecursionError):
        return None


def extract(text: str, pattern: str, group: int = 0) -> str | None:
    """The group of the first match, NULL without one."""
    compiled = _compiled(pattern)
    if compiled is None or not 0 <= group <= compiled.groups:
        return None
    match = compiled.search(text)
    return None if match is None else match.group(group)


def replace_all(text: str, pattern: str, replacement: str) -> str | None:
    """Every match replaced by the text as it is (no group references)."""
    compiled = _compiled(pattern)
    return None if compiled is None else compiled.sub(lambda _: replacement, text)


def _build(call: Call, context: EvaluationContext) -> Kernel:
    pattern = constant(call.args[1])
    if isinstance(pattern, str):
        try:
            _compiled(pattern)
        except UnsupportedPattern as error:
            raise UnsupportedExpression(str(error)) from error
    return per_distinct(extract if call.function == "REGEXP_EXTRACT" else replace_all, pa.string())


KERNELS: dict[str, Builder] = {"REGEXP_EXTRACT": _build, "REGEXP_REPLACE": _build}
