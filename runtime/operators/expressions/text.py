"""Functions of text: length, case, parts, search, padding, joining."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.ir.expressions import Call, Expression, Literal
from planner.ir.types import to_arrow
from runtime.operators.expressions.arrow import pa, pc
from runtime.operators.expressions.context import Builder, EvaluationContext, Kernel, Vector
from runtime.operators.expressions.dictionary_road import per_distinct
from runtime.operators.expressions.vectors import as_array, constant, length_of


def _length(call: Call, context: EvaluationContext) -> Kernel:
    return pc.utf8_length


def _is_ascii(vector: Vector) -> bool:
    """Whether all bytes of the column are ASCII: one look at its buffer."""
    array = as_array(vector)
    if len(array) == 0:
        return True
    data = array.buffers()[2]
    if data is None:
        return True
    offsets = np.frombuffer(array.buffers()[1], np.int32, array.offset + len(array) + 1)[array.offset :]
    used = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return len(used) == 0 or int(used.max()) < 128


def _case(call: Call, context: EvaluationContext) -> Kernel:
    """UPPER and LOWER: outside ASCII by Python, whose full mappings (ß → SS, final sigma) are Java's."""
    upper = call.function == "UPPER"
    plain = pc.ascii_upper if upper else pc.ascii_lower
    full = per_distinct(str.upper if upper else str.lower, pa.string())
    return lambda vector: plain(vector) if _is_ascii(vector) else full(vector)


_TRIMS = {
    "BOTH": (pc.utf8_trim, str.strip),
    "LEADING": (pc.utf8_ltrim, str.lstrip),
    "TRAILING": (pc.utf8_rtrim, str.rstrip),
}


def _trim_side(side: str, characters: Expression | None) -> Kernel:
    arrow, python = _TRIMS[side]
    known: Any = " " if characters is None else constant(characters)
    if isinstance(known, str):
        if not known:
            return lambda text, *_: text
        return lambda text, *_: arrow(as_array(text, length_of(text, *_)), characters=known)
    return per_distinct(lambda text, set_, *_: python(text, set_) if set_ else text, pa.string())


def _trim(call: Call, context: EvaluationContext) -> Kernel:
    side = call.args[2]
    assert isinstance(side, Literal)
    return _trim_side(str(side.value), call.args[1])


def _one_sided_trim(call: Call, context: EvaluationContext) -> Kernel:
    side = {"LTRIM": "LEADING", "RTRIM": "TRAILING"}[call.function]
    return _trim_side(side, call.args[1] if len(call.args) > 1 else None)


def substring(text: str, start: int, length: int | None = None) -> str | None:
    """SQL's SUBSTRING over code points: starts from 1 (0 counts as 1), or from the end if negative."""
    if length is not None and length < 0:
        return None
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if first < 0 or first >= len(text):
        return ""
    return text[first:] if length is None else text[first : first + length]


def _substring(call: Call, context: EvaluationContext) -> Kernel:
    start, length = constant(call.args[1]), constant(call.args[2]) if len(call.args) > 2 else None
    if isinstance(start, int) and start >= 0 and (length is None or (isinstance(length, int) and length >= 0)):
        first = max(start - 1, 0)
        if len(call.args) == 2:
            return lambda text, *_: pc.utf8_slice_codeunits(as_array(text, length_of(text, *_)), first)
        if isinstance(length, int):
            stop = first + length
            return lambda text, *_: pc.utf8_slice_codeunits(as_array(text, length_of(text, *_)), first, stop)
    return per_distinct(substring, pa.string())


def _position(call: Call, context: EvaluationContext) -> Kernel:
    """POSITION(needle IN text), in code points, 0 if absent."""
    t = to_arrow(call.type)
    needle, one = constant(call.args[0]), pa.scalar(1, pa.int32())
    by_value = per_distinct(lambda needle, text: text.find(needle) + 1, t)
    if not isinstance(needle, str):
        return by_value

    def kernel(needle_: Vector, text: Vector) -> Vector:
        if isinstance(text, pa.Scalar) or not _is_ascii(text):
            return by_value(needle_, text)
        return pc.cast(pc.add(pc.find_substring(text, needle), one), t)

    return kernel


def to_code_units(text: str) -> str:
    """The text as Java holds it: characters beyond U+FFFF as two surrogates."""
    if not text or max(text) <= "\uffff":
        return text
    units = np.frombuffer(text.encode("utf-16-le"), np.uint16)
    return "".join(map(chr, units.tolist()))


def from_code_units(text: str) -> str:
    """Back from Java's form; half a pair becomes `?`, as when Java encodes it."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return paired.encode("utf-8", "replace").decode("utf-8")


def _replace(call: Call, context: EvaluationContext) -> Kernel:
    search, replacement = constant(call.args[1]), constant(call.args[2])
    if isinstance(search, str) and search and isinstance(replacement, str):

        def kernel(text: Vector, *_: Vector) -> Vector:
            return pc.replace_substring(as_array(text, length_of(text, *_)), search, replacement)

        return kernel
    return per_distinct(replace, pa.string())


def replace(text: str, search: str, replacement: str) -> str:
    """All occurrences; the empty text occurs before and after each of Java's characters."""
    if search:
        return text.replace(search, replacement)
    return from_code_units(to_code_units(text).replace("", to_code_units(replacement)))


def pad(text: str, length: int, filling: str, left: bool) -> str | None:
    """LPAD and RPAD, counted in Java's characters. NULL for a negative length or an empty filling."""
    if length < 0 or not filling:
        return None
    units, fill = to_code_units(text), to_code_units(filling)
    if len(units) >= length:
        return from_code_units(units[:length])
    missing = length - len(units)
    padding = (fill * (missing // len(fill) + 1))[:missing]
    return from_code_units(padding + units if left else units + padding)


def _pad(call: Call, context: EvaluationContext) -> Kernel:
    left = call.function == "LPAD"
    length, filling = constant(call.args[1]), constant(call.args[2])
    by_value = per_distinct(lambda text, length, filling: pad(text, length, filling, left), pa.string())
    if not (isinstance(length, int) and length >= 0 and isinstance(filling, str) and len(filling) == 1):
        return by_value
    if not filling.isascii():
        return by_value
    fill = pc.utf8_lpad if left else pc.utf8_rpad

    def kernel(text: Vector, *rest: Vector) -> Vector:
        array = as_array(text, length_of(text, *rest))
        if not _is_ascii(array):
            return by_value(array, *rest)
        return pc.utf8_slice_codeunits(fill(array, length, filling), 0, length)

    return kernel


def _concat(call: Call, context: EvaluationContext) -> Kernel:
    return lambda *texts: pc.binary_join_element_wise(*_texts(texts), "", null_handling="emit_null")


def _concat_ws(call: Call, context: EvaluationContext) -> Kernel:
    """NULL parts are left out; a NULL separator gives NULL."""

    def kernel(separator: Vector, *texts: Vector) -> Vector:
        *parts, glue = _texts((*texts, separator))
        joined = pc.binary_join_element_wise(*parts, glue, null_handling="skip")
        if len(joined) == length_of(*parts, glue):
            return joined
        # Arrow forgets the rows whose parts are all NULL: there the answer is the empty text.
        missing = pc.is_null(parts[0])
        for part in parts[1:]:
            missing = pc.and_(missing, pc.is_null(part))
        first = pc.if_else(missing, "", parts[0])
        return pc.binary_join_element_wise(first, *parts[1:], glue, null_handling="skip")

    return kernel


def _texts(vectors: tuple[Vector, ...]) -> list[Vector]:
    """At least one array among the vectors, all of type string."""
    length = length_of(*vectors)
    typed = [v if pa.types.is_string(v.type) else pc.cast(v, pa.string()) for v in vectors]
    if all(isinstance(v, pa.Scalar) for v in typed):
        typed[0] = as_array(typed[0], length)
    return typed


_WHITESPACE = "".join(
    map(chr, (*range(0x09, 0x0E), *range(0x1C, 0x21), 0x1680, *range(0x2000, 0x2007), *range(0x2008, 0x200B),
              0x2028, 0x2029, 0x205F, 0x3000))
)  # fmt: skip
"""Java's `Character.isWhitespace`: no-break spaces are not."""


def split_index(text: str, separator: str | int, index: int) -> str | None:
    """Part `index` (from 0); the empty separator splits at white space; the empty text has no parts."""
    if index < 0 or not text:
        return None
    if isinstance(separator, int):
        if not 0 <= separator <= 0x10FFFF:
            return None
        separator = chr(separator)
    if separator:
        parts = text.split(separator)
    else:
        parts = text.translate(dict.fromkeys(map(ord, _WHITESPACE), "\0")).split("\0")
    return parts[index] if index < len(parts) else None


def _split_index(call: Call, context: EvaluationContext) -> Kernel:
    return per_distinct(split_index, pa.string())


KERNELS: dict[str, Builder] = {
    "CHAR_LENGTH": _length,
    "CHARACTER_LENGTH": _length,
    "UPPER": _case,
    "LOWER": _case,
    "TRIM": _trim,
    "LTRIM": _one_sided_trim,
    "RTRIM": _one_sided_trim,
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "POSITION": _position,
    "REPLACE": _replace,
    "CONCAT": _concat,
    "CONCAT_OPERATOR": _concat,
    "CONCAT_WS": _concat_ws,
    "SPLIT_INDEX": _split_index,
    "LPAD": _pad,
    "RPAD": _pad,
}
