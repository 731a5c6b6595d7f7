"""The dictionary road: one Python call per distinct value, for what no engine does as Java does.

Columns are dictionary-encoded; the function runs once per distinct tuple of varying arguments and the answers are
spread by `take`. NULL in any argument is NULL without a call, unless the kernel handles NULL itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from runtime.operators.expressions.arrow import ArrowType, pa, pc
from runtime.operators.expressions.context import Kernel, Vector
from runtime.operators.expressions.vectors import length_of


def per_distinct(function: Callable[..., Any], result: ArrowType) -> Kernel:
    """A kernel that calls `function(*values)` per distinct tuple of non-NULL arguments; None means NULL."""

    def kernel(*vectors: Vector) -> Vector:
        varying = [index for index, vector in enumerate(vectors) if not isinstance(vector, pa.Scalar)]
        fixed = [vector.as_py() if isinstance(vector, pa.Scalar) else None for vector in vectors]
        length = length_of(*vectors)
        if any(isinstance(vector, pa.Scalar) and not vector.is_valid for vector in vectors):
            return pa.nulls(length, result)
        if len(varying) == 1:
            (position,) = varying
            encoded = _encode(vectors[position])
            answers = []
            for value in encoded.dictionary.to_pylist():
                fixed[position] = value
                answers.append(function(*fixed))
            return pa.array(answers, result).take(encoded.indices)
        return _several(function, result, vectors, varying, fixed)

    return kernel


def _encode(vector: Vector) -> Any:
    return vector if pa.types.is_dictionary(vector.type) else pc.dictionary_encode(vector)


def _several(
    function: Callable[..., Any],
    result: ArrowType,
    vectors: tuple[Vector, ...],
    varying: list[int],
    fixed: list[Any],
) -> Vector:
    """Distinct tuples of several columns: their codes are combined into one integer per row."""
    columns = [_encode(vectors[position]) for position in varying]
    values = [column.dictionary.to_pylist() for column in columns]
    valid = np.ones(len(columns[0]), np.bool_)
    combined = np.zeros(len(columns[0]), np.int64)
    for column, distinct in zip(columns, values, strict=True):
        codes = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        valid &= column.indices.is_valid().to_numpy(zero_copy_only=False)
        combined = combined * max(len(distinct), 1) + codes
    distinct_codes, inverse = np.unique(combined[valid], return_inverse=True)
    answers = []
    for code in distinct_codes.tolist():
        arguments = list(fixed)
        for position, distinct in zip(reversed(varying), reversed(values), strict=True):
            code, index = divmod(code, max(len(distinct), 1))
            arguments[position] = distinct[index]
        answers.append(function(*arguments))
    indices = np.zeros(len(valid), np.int64)
    indices[valid] = inverse
    return pa.array(answers, result).take(pa.array(indices, mask=~valid))
