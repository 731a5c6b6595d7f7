"""REGEXP_EXTRACT and REGEXP_REPLACE with Java's meaning of the pattern: by RE2 where it is the same, else one Python
call per distinct text."""

from __future__ import annotations

import re

from planner.ir.expressions import Call
from runtime.operators.expressions.arrow import pa, pc
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, UnsupportedExpression
from runtime.operators.expressions.dictionary_road import per_distinct
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.java_regex import UnsupportedPattern, compile_java
from runtime.operators.expressions.re2_subset import to_re2
from runtime.operators.expressions.vectors import as_array, constant, length_of


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
    by_value = per_distinct(extract if call.function == "REGEXP_EXTRACT" else replace_all, pa.string())
    if not isinstance(pattern, str):
        return by_value
    try:
        compiled = _compiled(pattern)
    except UnsupportedPattern as error:
        raise UnsupportedExpression(str(error)) from error
    fast = None if compiled is None else _by_re2(call, pattern, compiled)
    return by_value if fast is None else fast


def _by_re2(call: Call, pattern: str, compiled: re.Pattern[str]) -> Kernel | None:
    """The Arrow kernel for a pattern that RE2 reads as Java does, with literal arguments."""
    last = constant(call.args[2]) if len(call.args) > 2 else 0
    if call.function == "REGEXP_EXTRACT":
        expression = to_re2(pattern, last) if isinstance(last, int) and last >= 0 else None
        if expression is None:
            return None
        return lambda text, *rest: pc.struct_field(
            pc.extract_regex(as_array(text, length_of(text, *rest)), expression), "g"
        )
    # Where it can match nothing at all, the engines differ in where they go on.
    expression = to_re2(pattern) if isinstance(last, str) and compiled.match("") is None else None
    if expression is None or not isinstance(last, str):
        return None
    replacement = last.replace("\\", "\\\\")
    return lambda text, *rest: pc.replace_substring_regex(
        as_array(text, length_of(text, *rest)), expression, replacement
    )


KERNELS: dict[str, Builder] = {"REGEXP_EXTRACT": _build, "REGEXP_REPLACE": _build}
