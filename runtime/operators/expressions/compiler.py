"""From typed IR to one generated Python function: straight-line kernels, columns and results as locals.

*Guards.* Kernels are eager, SQL is lazy: `CASE WHEN d <> 0 THEN 10 / d END` must not divide where d = 0. A guard is
the mask of rows for which a sub-expression is evaluated (CASE branch taken, left of AND not FALSE, earlier COALESCE
arguments NULL). A call that can raise gets NULL in its first argument where its guard is not TRUE, and answers NULL
there. Guards are computed only where something below can raise; equal sub-expressions are shared under equal guards,
those that cannot raise everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

from planner.ir.expressions import Call, Expression, InputRef, Literal, canonical, walk
from planner.ir.functions import BY_ID, Road, cast_can_raise
from planner.ir.types import DataType, TypeRoot, to_arrow
from runtime.operators.expressions import duckdb_road
from runtime.operators.expressions.arrow import pc
from runtime.operators.expressions.context import EvaluationContext, Kernel, UnsupportedExpression, Vector
from runtime.operators.expressions.errors import RaisedInCall
from runtime.operators.expressions.like import is_valid_pattern
from runtime.operators.expressions.registry import CLOCK_KERNELS, KERNELS
from runtime.operators.expressions.vectors import FALSE, TRUE, as_array, choose, is_true, null_of, scalar_of

LAZY = frozenset({"AND", "OR", "CASE", "COALESCE", "IFNULL", "IF"})


def can_raise(expression: Expression) -> bool:
    """Whether evaluating this node itself (not its arguments) can fail on a value."""
    if not isinstance(expression, Call) or not BY_ID[expression.function].can_raise:
        return False
    match expression.function:
        case "CAST":
            return _strict_cast_can_raise(expression.args[0].type, expression.type)
        case "DIVIDE" | "MODULO" | "MOD":
            divisor = expression.args[1]
            if expression.type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
                return False
            return not isinstance(divisor, Literal) or (divisor.value is not None and float(divisor.value) == 0)
        case "LIKE":
            return len(expression.args) > 2 and not is_valid_pattern(expression.args[1], expression.args[2])
        case "ITEM_ARRAY":
            position = expression.args[1]
            return not (isinstance(position, Literal) and int(position.value or 1) >= 1)
        case "REGEXP_EXTRACT" | "REGEXP_REPLACE" | "DATE_FORMAT" | "DATE_FORMAT_TEXT" | "FROM_UNIXTIME":
            # A pattern that is not known at compilation may be one that is refused.
            return not all(isinstance(argument, Literal) for argument in expression.args[1:])
        case _:
            return True


def _strict_cast_can_raise(source: DataType, target: DataType) -> bool:
    """Texts may be malformed, years may not fit nanoseconds; so may the parts of ROW, ARRAY and MAP."""
    if source.root is target.root and target.root in (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW):
        pairs = [(source.key, target.key), (source.element, target.element)]
        pairs += [(a.type, b.type) for a, b in zip(source.fields, target.fields, strict=False)]
        return any(_strict_cast_can_raise(a, b) for a, b in pairs if a is not None and b is not None)
    return cast_can_raise(source, target) or (target.is_timestamp and (target.precision or 0) > 6)


def any_can_raise(expression: Expression) -> bool:
    """Whether anything in the expression can fail on a value."""
    return any(can_raise(node) for node in walk(expression))


def _last_raising(arguments: tuple[Expression, ...]) -> int:
    """Index of the last argument in which something can fail, -1 if nothing can."""
    return max((index for index, argument in enumerate(arguments) if any_can_raise(argument)), default=-1)


def is_deterministic(expression: Expression) -> bool:
    """Whether the expression gives the same answer for the same row at any time."""
    return all(BY_ID[node.function].deterministic for node in walk(expression) if isinstance(node, Call))


def is_duckdb(expression: Expression) -> TypeGuard[Call]:
    """Whether DuckDB evaluates this node."""
    return isinstance(expression, Call) and BY_ID[expression.function].road is Road.DUCKDB


def contains_duckdb(expression: Expression) -> bool:
    """Whether DuckDB evaluates any part of the expression."""
    return any(is_duckdb(node) for node in walk(expression))


class Program:
    """Source text under construction, with the objects it refers to.

    Locals: `n` (rows), `now` (clock, ms), `c<i>` (input columns), `v<i>` (results). Globals: `k<i>` and the rest.
    """

    def __init__(self, context: EvaluationContext) -> None:
        self._context = context
        self._shared: dict[tuple[str, str], str] = {}
        self._constants: dict[str, str] = {}
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {
            "as_array": as_array,
            "choose": choose,
            "is_true": is_true,
            "pc": pc,
            "guarded": guarded,
            "FALSE": FALSE,
            "TRUE": TRUE,
        }
        self.uses_clock = False

    def next_stage(self) -> None:
        """The columns are about to change (rows were filtered): nothing computed so far may be shared."""
        self._shared.clear()

    def hoist_duckdb(self, expressions: Iterable[Expression]) -> None:
        """Compute all DuckDB calls that need no guard by one statement, ahead of everything else."""
        calls: dict[str, Call] = {}
        for expression in expressions:
            for node in walk(expression):
                if is_duckdb(node) and not any(any_can_raise(a) or contains_duckdb(a) for a in node.args):
                    calls[canonical(node)] = node
        if len(calls) < 2:
            return
        arguments = [self.compile(argument) for call in calls.values() for argument in call.args]
        kernel = self.bind("k", duckdb_road.statement(tuple(calls.values())))
        results = self.assign(f"{kernel}(n, {', '.join(arguments)})")
        for index, call in enumerate(calls.values()):
            self._shared[canonical(call), ""] = self.assign(f"{results}[{index}]")

    def compile(self, expression: Expression, guard: str = "") -> str:
        """Emit what computes `expression` for the rows of `guard` (a local's name, "" = all rows); its local's name."""
        if isinstance(expression, InputRef):
            return f"c{expression.index}"
        if isinstance(expression, Literal):
            return self._constant(expression)
        guard = guard if any_can_raise(expression) else ""
        key = canonical(expression), guard
        if key in self._shared:
            return self._shared[key]
        name = self._lazy(expression, guard) if expression.function in LAZY else self._call(expression, guard)
        if is_deterministic(expression):
            self._shared[key] = name
        return name

    def assign(self, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def bind(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def _constant(self, literal: Literal) -> str:
        key = canonical(literal)
        if key not in self._constants:
            self._constants[key] = self.bind("s", scalar_of(literal))
        return self._constants[key]

    def _call(self, call: Call, guard: str) -> str:
        if call.function in CLOCK_KERNELS:
            self.uses_clock = True
            kernel = self.bind("k", CLOCK_KERNELS[call.function](call, self._context))
            return self.assign(f"{kernel}(n, now)")
        if BY_ID[call.function].road is Road.DUCKDB:
            kernel = self.bind("k", duckdb_road.single(call))
        else:
            kernel = self.bind("k", self._kernel(call))
        arguments = [self.compile(argument, guard) for argument in call.args]
        if all(isinstance(argument, Literal) for argument in call.args):
            arguments[0] = self.assign(f"as_array({arguments[0]}, n)")
        if not can_raise(call):
            return self.assign(f"{kernel}({', '.join(arguments)})")
        if guard:
            nothing = self.bind("s", null_of(to_arrow(call.args[0].type)))
            arguments[0] = self.assign(f"pc.if_else({guard}, {arguments[0]}, {nothing})")
        text = self.bind("t", call.text or canonical(call))
        return self.assign(f"guarded({kernel}, {text}, {', '.join(arguments)})")

    def _lazy(self, call: Call, guard: str) -> str:
        match call.function:
            case "AND" | "OR":
                return self._and_or(call, guard)
            case "CASE":
                return self._case(call.args, call, guard)
            case "IF":
                return self._case(call.args, call, guard)
            case _:
                return self._coalesce(call, guard)

    def _narrow(self, guard: str, condition: str) -> str:
        """A guard that also demands `condition`, the text of a BOOLEAN without NULLs."""
        key = f"{guard} & {condition}", "guard"
        if key not in self._shared:
            text = condition if not guard else f"pc.and_({guard}, {condition})"
            self._shared[key] = self.assign(f"as_array({text}, n)")
        return self._shared[key]

    def _kernel(self, call: Call) -> Kernel:
        """The call's kernel; what has none is refused with the SQL of the innermost call."""
        try:
            return KERNELS[call.function](call, self._context)
        except UnsupportedExpression as error:
            raise UnsupportedExpression(str(error), error.text or call.text) from error

    def _and_or(self, call: Call, guard: str) -> str:
        kernel, decided = ("pc.and_kleene", "FALSE") if call.function == "AND" else ("pc.or_kleene", "TRUE")
        last_raising = _last_raising(call.args)
        result = self.compile(call.args[0], guard)
        for position, argument in enumerate(call.args[1:], 1):
            inner = guard
            if position <= last_raising:
                undecided = f"pc.fill_null(pc.not_equal({result}, {decided}), TRUE)"
                inner = self._narrow(guard, undecided)
            right = self.compile(argument, inner)
            result = self.assign(f"{kernel}({result}, {right})")
        return result

    def _case(self, arguments: tuple[Expression, ...], call: Call, guard: str) -> str:
        """(condition, value)*, else → nested choices, the last branch innermost."""
        condition = self.compile(arguments[0], guard)
        taken = self.assign(f"is_true({condition})")
        value_guard = rest_guard = guard
        if any_can_raise(arguments[1]):
            value_guard = self._narrow(guard, taken)
        value = self._typed(arguments[1], call, value_guard)
        rest = arguments[2:]
        if any(any_can_raise(argument) for argument in rest):
            rest_guard = self._narrow(guard, f"pc.invert({taken})")
        if not rest:
            otherwise = self._constant(Literal(None, call.type))
        elif len(rest) == 1:
            otherwise = self._typed(rest[0], call, rest_guard)
        else:
            otherwise = self._case(rest, call, rest_guard)
        return self.assign(f"choose({taken}, {value}, {otherwise})")

    def _coalesce(self, call: Call, guard: str) -> str:
        names = []
        last_raising = _last_raising(call.args)
        for position, argument in enumerate(call.args):
            name = self._typed(argument, call, guard)
            names.append(name)
            if position < last_raising:
                guard = self._narrow(guard, f"pc.is_null({name})")
        return self.assign(f"pc.coalesce({', '.join(names)})")

    def _typed(self, expression: Expression, call: Call, guard: str) -> str:
        """The expression in the Arrow type of the call's result."""
        if to_arrow(expression.type) == to_arrow(call.type):
            return self.compile(expression, guard)
        if isinstance(expression, Literal) and expression.value is None:
            return self._constant(Literal(None, call.type))
        return self.compile(fold(Call("CAST", (expression,), call.type), self._context), guard)


def guarded(kernel: Kernel, text: str, *arguments: Vector) -> Vector:
    """Run a kernel that can raise; what it raises carries the call's text and arguments."""
    try:
        return kernel(*arguments)
    except (ValueError, ArithmeticError) as error:
        raise RaisedInCall(text, arguments, error) from error


def fold(expression: Expression, context: EvaluationContext) -> Expression:
    """Constant sub-expressions evaluated once, by the same kernels; what raises stays as it is, to raise in its row."""
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(fold(argument, context) for argument in expression.args)
    folded = Call(expression.function, arguments, expression.type, expression.text)
    row = BY_ID[expression.function]
    if not arguments or not row.deterministic or not all(isinstance(a, Literal) for a in arguments):
        return same_operands(folded)
    from runtime.operators.expressions.constants import evaluate_constant

    return evaluate_constant(folded, context)


_ALWAYS_EQUAL = {"EQ": True, "LTE": True, "GTE": True, "NEQ": False, "LT": False, "GT": False}


def same_operands(call: Call) -> Expression:
    """`x = x` compares nothing: TRUE where x is not NULL, as Flink's optimiser has it (for NaN too)."""
    function = call.function
    if function not in (*_ALWAYS_EQUAL, "IS_DISTINCT_FROM", "IS_NOT_DISTINCT_FROM", "NULLIF"):
        return call
    left, right = call.args
    if canonical(left) != canonical(right) or not is_deterministic(left):
        return call
    if function == "NULLIF":
        return Literal(None, call.type)
    if function not in _ALWAYS_EQUAL:
        return Literal(function == "IS_NOT_DISTINCT_FROM", call.type)
    known = Call("IS_NOT_NULL", (left,), call.type.with_nullable(False), call.text)
    verdict = Literal(_ALWAYS_EQUAL[function], call.type)
    return Call("CASE", (known, verdict, Literal(None, call.type)), call.type, call.text)
