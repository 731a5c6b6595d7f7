"""The grammar of scalar expressions, with Apache Calcite's operator precedence.

Binary operators climb one table of levels. The levels are Calcite's, which differ from sqlglot's: IS binds more
weakly than comparison (`a = b IS NULL` is `(a = b) IS NULL`), and `||` as tightly as `*`.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from planner.errors import SqlError
from planner.sql import nodes
from planner.sql.cursor import too_complex
from planner.sql.dialect import RESERVED
from planner.sql.type_parser import TypeParser

OR_LEVEL, AND_LEVEL, NOT_LEVEL, IS_LEVEL, COMPARISON_LEVEL, RANGE_LEVEL = 22, 24, 26, 28, 30, 32
SUM_LEVEL, PRODUCT_LEVEL = 40, 60

_OPERATORS: dict[TokenType, tuple[int, type[exp.Binary]]] = {
    TokenType.EQ: (COMPARISON_LEVEL, exp.EQ),
    TokenType.NEQ: (COMPARISON_LEVEL, exp.NEQ),
    TokenType.LT: (COMPARISON_LEVEL, exp.LT),
    TokenType.LTE: (COMPARISON_LEVEL, exp.LTE),
    TokenType.GT: (COMPARISON_LEVEL, exp.GT),
    TokenType.GTE: (COMPARISON_LEVEL, exp.GTE),
    TokenType.PLUS: (SUM_LEVEL, exp.Add),
    TokenType.DASH: (SUM_LEVEL, exp.Sub),
    TokenType.STAR: (PRODUCT_LEVEL, exp.Mul),
    TokenType.SLASH: (PRODUCT_LEVEL, exp.Div),
    TokenType.MOD: (PRODUCT_LEVEL, exp.Mod),
    TokenType.DPIPE: (PRODUCT_LEVEL, exp.DPipe),
}
_WORD_OPERATORS: dict[str, tuple[int, type[exp.Binary]]] = {
    "OR": (OR_LEVEL, exp.Or),
    "AND": (AND_LEVEL, exp.And),
}
QUERY_WORDS = ("SELECT", "WITH", "VALUES")
"""What a query begins with, brackets apart."""

_RANGE_WORDS = ("BETWEEN", "IN", "LIKE", "SIMILAR")

INTERVAL_UNITS = {
    "YEAR": "YEAR",
    "YEARS": "YEAR",
    "QUARTER": "QUARTER",
    "QUARTERS": "QUARTER",
    "MONTH": "MONTH",
    "MONTHS": "MONTH",
    "WEEK": "WEEK",
    "WEEKS": "WEEK",
    "DAY": "DAY",
    "DAYS": "DAY",
    "HOUR": "HOUR",
    "HOURS": "HOUR",
    "MINUTE": "MINUTE",
    "MINUTES": "MINUTE",
    "SECOND": "SECOND",
    "SECONDS": "SECOND",
}
TIME_UNITS = frozenset(
    """
    MILLENNIUM CENTURY DECADE YEAR ISOYEAR QUARTER MONTH WEEK DAY DOW ISODOW DOY HOUR MINUTE SECOND MILLISECOND
    MICROSECOND NANOSECOND EPOCH SQL_TSI_YEAR SQL_TSI_QUARTER SQL_TSI_MONTH SQL_TSI_WEEK SQL_TSI_DAY SQL_TSI_HOUR
    SQL_TSI_MINUTE SQL_TSI_SECOND
    """.split()
)
UNIT_FIRST_FUNCTIONS = frozenset({"TIMESTAMPADD", "TIMESTAMPDIFF"})
_CHAIN_MAX = 256
"""Operators in a row: what walks the tree of a longer one would run out of stack."""
_FUNCTIONS_WITHOUT_PARENTHESES = frozenset(
    {"CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_ROW_TIMESTAMP"}
)
_RESERVED_FUNCTIONS = frozenset({"ROW", "ARRAY", "MAP", "LEFT", "RIGHT", "MULTISET", "GROUPING"})


class OperatorParser(TypeParser):
    """Operators; `_primary`, what stands between them, is the sub-class's."""

    def _expression(self) -> exp.Expr:
        return self._climb(0)

    def _primary(self) -> exp.Expr:
        raise NotImplementedError

    def _subquery(self, start: Token) -> exp.Expr:
        raise NotImplementedError

    def _query(self) -> nodes.QueryNode:
        raise NotImplementedError

    def _climb(self, level: int) -> exp.Expr:
        """An expression whose operators all bind at `level` or tighter."""
        start = self._curr
        left = self._prefix(level)
        operators = 0
        while self._curr:
            token = self._curr
            word = token.text.upper() if token.token_type is TokenType.VAR else ""
            operator = _WORD_OPERATORS.get(word) if word else _OPERATORS.get(token.token_type)
            if operator is not None:
                operator_level, node = operator
                if operator_level < level:
                    break
                operators += node not in (exp.And, exp.Or)
                self._check_length(operators, token)
                self._advance()
                if operator_level == COMPARISON_LEVEL and self._at_quantifier():
                    left = self._quantified(left, token, start)
                else:
                    left = self._node(node(this=left, expression=self._climb(operator_level + 1)), start)
            elif word == "IS" and level <= IS_LEVEL:
                operators += 1
                self._check_length(operators, token)
                left = self._is_test(left, start)
            elif level <= RANGE_LEVEL and (
                word in _RANGE_WORDS or (word == "NOT" and self._next_is_word(*_RANGE_WORDS))
            ):
                left = self._range_test(left, start)
            else:
                break
        return left

    def _check_length(self, operators: int, token: Token) -> None:
        """AND and OR apart, each operator of a chain nests what stands before it."""
        if operators > _CHAIN_MAX:
            hint = "Put brackets around parts of it: (a + b + …) + (c + d + …)."
            message = f"more than {_CHAIN_MAX} operators in a row"
            raise too_complex(message, self._token_span(token), hint, self.script)

    def _prefix(self, level: int) -> exp.Expr:
        """NOT and signs are read in a loop: a long row of them must not recurse."""
        starts: list[Token] = []
        while self._is_word("NOT") and level <= NOT_LEVEL:
            starts.append(self._curr)
            self._check_length(len(starts), self._curr)
            self._advance()
        if starts:
            operand = self._climb(NOT_LEVEL)
            for start in reversed(starts):
                operand = self._node(exp.Not(this=operand), start)
            return operand
        while self._curr.token_type in (TokenType.DASH, TokenType.PLUS):
            starts.append(self._curr)
            self._check_length(len(starts), self._curr)
            self._advance()
        operand = self._postfix()
        for start in reversed(starts):
            if start.token_type is TokenType.DASH:
                operand = self._node(exp.Neg(this=operand), start)
        return operand

    def _postfix(self) -> exp.Expr:
        """`primary[index].field…`"""
        start = self._curr
        operand = self._primary()
        while True:
            if self._match(TokenType.L_BRACKET):
                index = self._expression()
                self._expect(TokenType.R_BRACKET, "]")
                operand = self._node(nodes.ItemAccess(this=operand, index=index), start)
            elif self._match(TokenType.DOT):
                name = self._identifier("a field name")
                operand = self._node(nodes.FieldAccess(this=operand, name=name), start)
            else:
                return operand

    def _is_test(self, left: exp.Expr, start: Token) -> exp.Expr:
        self._expect_words("IS")
        negated = self._take_words("NOT")
        if self._take_words("DISTINCT", "FROM"):
            right = self._climb(COMPARISON_LEVEL + 1)
            return self._node(nodes.DistinctTest(this=left, expression=right, negated=negated), start)
        if not self._is_word("NULL", "TRUE", "FALSE", "UNKNOWN"):
            if self._is_word("JSON"):
                raise self._refuse("IS JSON")
            raise self._unexpected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", ("NULL", "TRUE", "FALSE"))
        test = self._curr.text.upper()
        self._advance()
        return self._node(nodes.IsTest(this=left, test=test, negated=negated), start)

    def _range_test(self, left: exp.Expr, start: Token) -> exp.Expr:
        negated = self._take_words("NOT")
        node: exp.Expr
        if self._take_words("BETWEEN"):
            symmetric = self._take_words("SYMMETRIC")
            if not symmetric:
                self._take_words("ASYMMETRIC")
            low = self._climb(RANGE_LEVEL + 1)
            self._expect_words("AND")
            high = self._climb(RANGE_LEVEL + 1)
            node = exp.Between(this=left, low=low, high=high, symmetric=symmetric)
        elif self._take_words("LIKE"):
            pattern = self._climb(RANGE_LEVEL + 1)
            escape = self._climb(RANGE_LEVEL + 1) if self._take_words("ESCAPE") else None
            node = nodes.LikeTest(this=left, expression=pattern, escape=escape)
        elif self._is_word("SIMILAR"):
            raise self._refuse("SIMILAR TO", hint="Use LIKE or REGEXP_EXTRACT.")
        else:
            self._expect_words("IN")
            node = self._membership(left)
        node = self._node(node, start)
        return self._node(exp.Not(this=node), start) if negated else node

    def _membership(self, left: exp.Expr) -> exp.Expr:
        if self._next_is_word(*QUERY_WORDS):
            return nodes.InQuery(this=left, query=self._in_parentheses(self._query))
        items = self._in_parentheses(lambda: self._list_of(self._expression))
        if len(items) == 1 and isinstance(items[0], nodes.ScalarQuery):
            # IN ((SELECT …)): the inner brackets only group.
            return nodes.InQuery(this=left, query=items[0].this)
        return exp.In(this=left, expressions=items)

    def _at_quantifier(self) -> bool:
        return self._is_word("ANY", "SOME", "ALL") and self._next.token_type is TokenType.L_PAREN

    def _quantified(self, left: exp.Expr, operator: Token, start: Token) -> exp.Expr:
        quantifier = "ALL" if self._is_word("ALL") else "ANY"
        self._advance()
        if not self._next_is_word(*QUERY_WORDS):
            raise self._over_values(operator.text, quantifier)
        query = self._in_parentheses(self._query)
        text = "<>" if operator.token_type is TokenType.NEQ else operator.text
        node = nodes.QuantifiedTest(this=left, operator=text, quantifier=quantifier, query=query)
        return self._node(node, start)

    def _over_values(self, operator: str, quantifier: str) -> SqlError:
        hint = f"Write {operator} {quantifier} (VALUES 1, 2)."
        if (operator, quantifier) in (("=", "ANY"), ("<>", "ALL")):
            hint = f"Write {'IN' if quantifier == 'ANY' else 'NOT IN'} (1, 2)."
        return self._refuse(f"{self._prev.text.upper()} over anything but a sub-query", hint=hint)


class ExpressionParser(OperatorParser):
    """Literals, names, CASE, CAST, brackets; calls are the sub-class's."""

    def _call(self, start: Token) -> exp.Expr:
        raise NotImplementedError

    def _primary(self) -> exp.Expr:
        token = self._curr
        match token.token_type:
            case TokenType.NUMBER:
                self._advance()
                return self._node(exp.Literal.number(token.text), token)
            case TokenType.STRING:
                self._advance()
                return self._node(exp.Literal.string(token.text), token)
            case TokenType.UNICODE_STRING:
                return self._unicode_string(token)
            case TokenType.HEX_STRING:
                self._advance()
                return self._node(exp.HexString(this=token.text), token)
            case TokenType.DOT if self._next.token_type is TokenType.NUMBER:
                self._advance(2)
                return self._node(exp.Literal.number("." + self._prev.text), token)
            case TokenType.L_PAREN:
                return self._parenthesised(token)
            case TokenType.IDENTIFIER:
                return self._call(token) if self._next.token_type is TokenType.L_PAREN else self._path()
            case TokenType.VAR:
                return self._word(token)
            case TokenType.PLACEHOLDER:
                raise self._refuse("dynamic parameters (?)")
            case _:
                raise self._unexpected("an expression")

    def _word(self, token: Token) -> exp.Expr:
        word = token.text.upper()
        if word == "NULL":
            self._advance()
            return self._node(exp.Null(), token)
        if word in ("TRUE", "FALSE"):
            self._advance()
            return self._node(exp.Boolean(this=word == "TRUE"), token)
        if word == "UNKNOWN":
            self._advance()
            return self._node(exp.Null(unknown=True), token)
        if word == "CASE":
            return self._case(token)
        if word == "INTERVAL":
            return self._interval(token)
        if word == "EXISTS":
            self._advance()
            return self._node(nodes.ExistsTest(this=self._in_parentheses(self._query)), token)
        if word in ("DATE", "TIME", "TIMESTAMP") and self._next.token_type is TokenType.STRING:
            self._advance(2)
            return self._node(nodes.TemporalLiteral(kind=word, text=self._prev.text), token)
        if word in _FUNCTIONS_WITHOUT_PARENTHESES and self._next.token_type is not TokenType.L_PAREN:
            self._advance()
            return self._node(nodes.FunctionCall(name=word, without_parentheses=True), token)
        if self._next.token_type is TokenType.L_PAREN and (
            word not in RESERVED or word in _RESERVED_FUNCTIONS or word == "CAST"
        ):
            return self._call(token)
        if word in ("ARRAY", "MAP") and self._next.token_type is TokenType.L_BRACKET:
            return self._bracket_constructor(word, token)
        return self._path()

    def _path(self) -> exp.Expr:
        start = self._curr
        parts = [self._identifier("an expression")]
        while self._curr.token_type is TokenType.DOT:
            self._advance()
            if self._match(TokenType.STAR):
                return self._node(nodes.AllColumns(expressions=parts), start)
            parts.append(self._identifier("a name"))
        if self._curr.token_type is TokenType.L_PAREN and len(parts) > 1:
            raise self._refuse("functions called by a catalog path", self._span_from(start))
        return self._node(nodes.NamePath(expressions=parts), start)

    def _parenthesised(self, start: Token) -> exp.Expr:
        if self._next_is_word(*QUERY_WORDS):
            return self._node(nodes.ScalarQuery(this=self._in_parentheses(self._query)), start)
        self._advance()
        items = self._list_of(self._expression)
        self._expect(TokenType.R_PAREN, ")")
        if len(items) > 1:
            return self._node(exp.Tuple(expressions=items), start)
        # Brackets only group; the inner node takes their place.
        return self._node(items[0], start)

    def _bracket_constructor(self, word: str, start: Token) -> exp.Expr:
        self._advance(2)
        items: list[exp.Expr] = []
        if self._curr.token_type is not TokenType.R_BRACKET:
            items = self._list_of(self._expression)
        self._expect(TokenType.R_BRACKET, "]")
        return self._node(nodes.FunctionCall(name=word, expressions=items), start)

    def _case(self, start: Token) -> exp.Expr:
        self._expect_words("CASE")
        operand = None if self._is_word("WHEN") else self._expression()
        branches: list[exp.Expr] = []
        while self._is_word("WHEN"):
            branch_start = self._curr
            self._advance()
            condition = self._expression()
            self._expect_words("THEN")
            value = self._expression()
            branches.append(self._node(exp.If(this=condition, true=value), branch_start))
        if not branches:
            raise self._unexpected("WHEN", ("WHEN",))
        default = self._expression() if self._take_words("ELSE") else None
        if not self._take_words("END"):
            raise self._unexpected("WHEN, ELSE or END", ("WHEN", "ELSE", "END"))
        return self._node(exp.Case(this=operand, ifs=branches, default=default), start)

    def _interval(self, start: Token) -> exp.Expr:
        self._expect_words("INTERVAL")
        negative = self._match(TokenType.DASH)
        text = self._string("a quoted number, as in INTERVAL '5' SECOND")
        unit = self._interval_unit()
        to = self._interval_unit() if self._take_words("TO") else None
        return self._node(nodes.IntervalLiteral(text=text, unit=unit, to=to, negative=negative), start)

    def _interval_unit(self) -> str:
        if not self._is_word(*INTERVAL_UNITS):
            raise self._unexpected("a unit such as SECOND, MINUTE, HOUR or DAY", tuple(INTERVAL_UNITS))
        unit = INTERVAL_UNITS[self._curr.text.upper()]
        self._advance()
        if self._match(TokenType.L_PAREN):
            self._list_of(lambda: self._integer("a precision"))
            self._expect(TokenType.R_PAREN, ")")
        return unit

    def _unicode_string(self, start: Token) -> exp.Expr:
        """`U&'\\00e9'`, with an optional UESCAPE character."""
        self._advance()
        escape = "\\"
        if self._take_words("UESCAPE"):
            escape = self._string("the escape character")
        return self._node(exp.Literal.string(self._decode_unicode(start, escape)), start)

    def _decode_unicode(self, token: Token, escape: str) -> str:
        out: list[str] = []
        text, i = token.text, 0
        while i < len(text):
            if text[i] != escape:
                out.append(text[i])
                i += 1
            elif text[i + 1 : i + 2] == escape:
                out.append(escape)
                i += 2
            else:
                digits = text[i + 1 : i + 5]
                try:
                    if len(digits) != 4:
                        raise ValueError
                    out.append(chr(int(digits, 16)))
                except ValueError:
                    message = f"{escape}{digits} is not an escape of four hex digits"
                    raise self._fail(message, self._token_span(token)) from None
                i += 5
        # Two escapes may be the halves of one code point.
        return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
