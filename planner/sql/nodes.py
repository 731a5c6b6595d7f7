"""Syntax nodes that sqlglot lacks or shapes differently, and the span every node carries.

Where sqlglot has a fitting node (And, EQ, Case, Cast, Select, …) it is used; the nodes here keep what the binder
needs: dotted paths unresolved, NOT apart, units and modes as upper-case words.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from sqlglot import exp

from planner.errors import Span

NodeT = TypeVar("NodeT", bound=exp.Expr)

_SPAN_KEY = "span"


def stamp(node: NodeT, start: int, end: int) -> NodeT:
    """Records that `node` was written at `[start, end)` of the submitted text."""
    node.meta[_SPAN_KEY] = (start, end)
    return node


def span_of(node: exp.Expr) -> Span:
    """Where `node` was written."""
    start, end = node.meta[_SPAN_KEY]
    return Span(start, end)


class NamePath(exp.Expression):
    """`a`, `a.b`, `a.b.c.d`: a table, a column or a field of a ROW; the binder finds out."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class FieldAccess(exp.Expression):
    """`expression.name` where the left side is not a plain name, e.g. `(r).x` or `a[1].x`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "name": True}


class ItemAccess(exp.Expression):
    """`array[i]` or `map[key]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "index": True}


class AllColumns(exp.Expression):
    """`*`, or `t.*` with the prefix in `expressions`."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}


class IsTest(exp.Expression):
    """`this IS [NOT] NULL | TRUE | FALSE | UNKNOWN`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "test": True, "negated": False}


class DistinctTest(exp.Expression):
    """`this IS [NOT] DISTINCT FROM expression`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "negated": False}


class LikeTest(exp.Expression):
    """`this LIKE expression [ESCAPE escape]`; NOT LIKE is wrapped in `exp.Not`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "escape": False}


class TemporalLiteral(exp.Expression):
    """`DATE | TIME | TIMESTAMP 'text'`."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "text": True}


class IntervalLiteral(exp.Expression):
    """`INTERVAL [-] 'text' unit [(precision)] [TO unit]`."""

    arg_types: ClassVar[dict[str, bool]] = {"text": True, "unit": True, "to": False, "negative": False}


class UnitWord(exp.Expression):
    """A time unit standing as an argument: `TIMESTAMPADD(DAY, …)`, `EXTRACT(DAY FROM …)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class TimeRounding(exp.Expression):
    """`FLOOR | CEIL (this TO unit)`."""

    arg_types: ClassVar[dict[str, bool]] = {"function": True, "this": True, "unit": True}


class TrimCall(exp.Expression):
    """`TRIM([BOTH | LEADING | TRAILING] [characters] FROM this)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "side": True, "characters": False}


class JsonValueCall(exp.Expression):
    """`JSON_VALUE(this, path [RETURNING type] [… ON EMPTY] [… ON ERROR])`; behaviours NULL, ERROR or DEFAULT."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "path": True,
        "returning": False,
        "on_empty": True,
        "empty_default": False,
        "on_error": True,
        "error_default": False,
    }


class FunctionCall(exp.Expression):
    """`name([DISTINCT] arguments) [FILTER (WHERE condition)]`; `star` for COUNT(*); `name` as written."""

    arg_types: ClassVar[dict[str, bool]] = {
        "name": True,
        "expressions": False,
        "distinct": False,
        "star": False,
        "filter": False,
        "without_parentheses": False,
    }


class NamedArgument(exp.Expression):
    """`NAME => this`."""

    arg_types: ClassVar[dict[str, bool]] = {"name": True, "this": True}


class TableArgument(exp.Expression):
    """`TABLE name` or `TABLE (query)` as an argument of a table function, with PARTITION BY or ORDER BY (`clause`)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "clause": False}


class Descriptor(exp.Expression):
    """`DESCRIPTOR(column, …)`."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class TypeNode(exp.Expression):
    """A data type: upper-case `name`, numeric `parameters`, `children` of ARRAY, MAP, MULTISET and ROW.

    `field_names` belong to ROW; `nullable` is False after NOT NULL.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "name": True,
        "parameters": False,
        "children": False,
        "field_names": False,
        "nullable": False,
    }


class TableName(exp.Expression):
    """A table or view in FROM. `options` is a tuple of OptionItem from an OPTIONS hint, `as_of` the expression of
    FOR SYSTEM_TIME AS OF."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": False, "as_of": False, "alias": False}


class TableFunctionCall(exp.Expression):
    """`[TABLE(] name(arguments) [)]` in FROM."""

    arg_types: ClassVar[dict[str, bool]] = {"name": True, "expressions": False, "alias": False}


class DerivedTable(exp.Expression):
    """`[LATERAL] (query)` in FROM."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "lateral": False, "alias": False}


class UnnestTable(exp.Expression):
    """`UNNEST(this) [WITH ORDINALITY]` in FROM."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "ordinality": False, "alias": False}


class JoinTable(exp.Expression):
    """`this [NATURAL] kind JOIN expression [ON on | USING (using)]`; kinds INNER, LEFT, RIGHT, FULL, CROSS and COMMA.

    `using` is a list of Identifiers. Of INNER, LEFT, RIGHT and FULL exactly one of natural, on and using is there.
    Commas and JOINs are read from left to right and bind alike.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expression": True,
        "kind": True,
        "natural": False,
        "on": False,
        "using": False,
    }


class TableAlias(exp.Expression):
    """`[AS] name [(column, …)]`."""

    arg_types: ClassVar[dict[str, bool]] = {"name": True, "columns": False}


class SelectItem(exp.Expression):
    """One projection: an expression and its alias (an Identifier), if any."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "alias": False}


class SelectQuery(exp.Expression):
    """One SELECT block. `hints` is a tuple of Hint."""

    arg_types: ClassVar[dict[str, bool]] = {
        "expressions": True,
        "distinct": False,
        "hints": False,
        "from_": False,
        "where": False,
        "group": False,
        "having": False,
        "qualify": False,
    }


class GroupingElement(exp.Expression):
    """An item of GROUP BY that is no plain expression; `kind` is SET for `(a, b)` and `()`, ROLLUP, CUBE or SETS.

    The items of a SET are expressions, those of ROLLUP and CUBE expressions and SETs, those of SETS anything.
    """

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "expressions": True}


class UnionAllQuery(exp.Expression):
    """`a UNION ALL b UNION ALL c`, flattened."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class SetQuery(exp.Expression):
    """`this kind [ALL] expression`: `kind` is UNION, INTERSECT or EXCEPT; UNION ALL is a UnionAllQuery."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "kind": True, "all": False}


class ValuesQuery(exp.Expression):
    """`VALUES (…), (…)`: `rows` is a list of exp.Tuple."""

    arg_types: ClassVar[dict[str, bool]] = {"rows": True}


class QueryNode(exp.Expression):
    """A whole query: WITH list, body (SelectQuery, UnionAllQuery, SetQuery, ValuesQuery or QueryNode), `order` (a list
    of OrderItem), LIMIT or FETCH, OFFSET."""

    arg_types: ClassVar[dict[str, bool]] = {
        "ctes": False,
        "this": True,
        "order": False,
        "limit": False,
        "offset": False,
    }


class OrderItem(exp.Expression):
    """`this [ASC | DESC] [NULLS FIRST | LAST]`; `nulls_first` is None where it is not said."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "descending": False, "nulls_first": False}


class OverCall(exp.Expression):
    """`this OVER ([PARTITION BY partition] [ORDER BY order])`; `this` is a FunctionCall, `order` of OrderItem."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "partition": False, "order": False}


class ScalarQuery(exp.Expression):
    """`(query)` as a value."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class ExistsTest(exp.Expression):
    """`EXISTS (query)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class InQuery(exp.Expression):
    """`this IN (query)`; `this` is an exp.Tuple for several columns. NOT IN is wrapped in `exp.Not`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "query": True}


class QuantifiedTest(exp.Expression):
    """`this operator ANY | ALL (query)`; `operator` is the comparison's text, SOME is ANY."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "operator": True, "quantifier": True, "query": True}


class CommonTable(exp.Expression):
    """One WITH item: `name [(columns)] AS (query)`."""

    arg_types: ClassVar[dict[str, bool]] = {"name": True, "columns": False, "this": True}
