"""LIKE: patterns known at compilation become prefix, suffix, substring or RE2 tests; others run per distinct pair."""

from __future__ import annotations

import re
from functools import lru_cache

from planner.ir.expressions import Call, Expression
from runtime.operators.expressions.arrow import pa, pc
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, Vector
from runtime.operators.expressions.dictionary_road import per_distinct
from runtime.operators.expressions.errors import EvaluationFailure
from runtime.operators.expressions.vectors import as_array, constant, length_of

Tokens = list[str | None]
"""A pattern in pieces: literal text, "" for any one character (`_`), None for any text (`%`)."""

_ONE = "[^\n\r\u0085\u2028\u2029]"
"""`_` stands for one character that ends no line, as Java's `.`."""


def tokens_of(pattern: str, escape: str) -> Tokens:
    """Raises EvaluationFailure for a bad escape character or sequence."""
    if len(escape) > 1:
        raise EvaluationFailure(f"invalid escape character {escape!r}")
    tokens: Tokens = []
    literal = ""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if escape and character == escape:
            following = pattern[position + 1 : position + 2]
            if not following or following not in ("%", "_", escape):
                raise EvaluationFailure(f"invalid escape sequence {pattern!r}, {position}")
            literal += following
            position += 2
            continue
        if character in "%_":
            if literal:
                tokens.append(literal)
            literal = ""
            tokens.append(None if character == "%" else "")
        else:
            literal += character
        position += 1
    return [*tokens, literal] if literal else tokens


def _expression_of(tokens: Tokens, quote: str) -> str:
    parts = ["(?s:.*)" if token is None else _ONE if token == "" else _quoted(token) for token in tokens]
    return f"^{''.join(parts)}{quote}"


def _quoted(text: str) -> str:
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{ord(c):02x}" for c in text)


@lru_cache(maxsize=1024)
def _matcher(pattern: str, escape: str) -> re.Pattern[str]:
    return re.compile(_expression_of(tokens_of(pattern, escape), r"\Z"))


def matches(text: str, pattern: str, escape: str = "") -> bool:
    """Whether the text is like the pattern."""
    return _matcher(pattern, escape).match(text) is not None


def is_valid_pattern(pattern: Expression, escape: Expression) -> bool:
    """Whether both are known and the pattern has no bad escape sequence."""
    known, character = constant(pattern), constant(escape)
    if not (isinstance(known, str) and isinstance(character, str)):
        return False
    try:
        tokens_of(known, character)
    except EvaluationFailure:
        return False
    return True


def _like(call: Call, context: EvaluationContext) -> Kernel:
    pattern = constant(call.args[1])
    escape = constant(call.args[2]) if len(call.args) > 2 else ""
    if not (isinstance(pattern, str) and isinstance(escape, str)):
        return per_distinct(matches, pa.bool_())
    try:
        test = _test_of(tokens_of(pattern, escape))
    except EvaluationFailure:
        return per_distinct(matches, pa.bool_())

    def kernel(text: Vector, *rest: Vector) -> Vector:
        return test(as_array(text, length_of(text, *rest)))

    return kernel


def _test_of(tokens: Tokens) -> Kernel:
    """The cheapest test for the shape of the pattern."""
    match tokens:
        case []:
            return _equals("")
        case [str(literal)] if literal:
            return _equals(literal)
        case [str(literal), None] if literal:
            return lambda text: pc.starts_with(text, literal)
        case [None, str(literal)] if literal:
            return lambda text: pc.ends_with(text, literal)
        case [None, str(literal), None] if literal:
            return lambda text: pc.match_substring(text, literal)
        case _:
            expression = _expression_of(tokens, r"\z")
            return lambda text: pc.match_substring_regex(text, expression)


def _equals(literal: str) -> Kernel:
    wanted = pa.scalar(literal)
    return lambda text: pc.equal(text, wanted)


KERNELS: dict[str, Builder] = {"LIKE": _like}
