"""The grammar of function calls: plain ones, and those whose arguments have words of their own."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from planner.sql import nodes
from planner.sql.expression_parser import RANGE_LEVEL, TIME_UNITS, UNIT_FIRST_FUNCTIONS, ExpressionParser

RANK_FUNCTIONS = frozenset({"ROW_NUMBER", "RANK", "DENSE_RANK"})


class CallParser(ExpressionParser):
    """Dispatches on the function's name; a quoted name is always a plain call."""

    def _call(self, start: Token) -> exp.Expr:
        name = start.text.upper() if start.token_type is TokenType.VAR else ""
        self._advance(2)
        match name:
            case "CAST" | "TRY_CAST":
                return self._cast(name, start)
            case "EXTRACT":
                return self._extract(start)
            case "TRIM":
                return self._trim(start)
            case "SUBSTRING":
                return self._substring(start)
            case "POSITION":
                return self._position(start)
            case "OVERLAY":
                raise self._refuse("OVERLAY", self._token_span(start))
            case "FLOOR" | "CEIL" | "CEILING":
                return self._rounding(name, start)
            case "JSON_VALUE":
                return self._json_value(start)
            case _ if name in UNIT_FIRST_FUNCTIONS:
                return self._unit_first(start)
            case _:
                return self._plain_call(start)

    def _close_call(self, node: nodes.NodeT, start: Token) -> nodes.NodeT:
        if not self._match(TokenType.R_PAREN):
            raise self._unexpected("',' or ')'")
        return self._node(node, start)

    def _plain_call(self, start: Token) -> exp.Expr:
        call = nodes.FunctionCall(name=start.text)
        if self._match(TokenType.STAR):
            call.set("star", True)
        elif self._curr.token_type is not TokenType.R_PAREN:
            if self._take_words("DISTINCT"):
                call.set("distinct", True)
            elif self._is_word("ALL"):
                self._advance()
            call.set("expressions", self._list_of(self._argument))
        if self._is_word("ORDER"):
            raise self._refuse("ORDER BY inside a function call")
        call = self._close_call(call, start)
        return self._call_suffix(call, start)

    def _call_suffix(self, call: nodes.FunctionCall, start: Token) -> exp.Expr:
        if self._is_word("WITHIN"):
            raise self._refuse("WITHIN GROUP")
        if self._is_word("IGNORE", "RESPECT") and self._next_is_word("NULLS"):
            raise self._refuse(f"{self._curr.text.upper()} NULLS")
        if self._is_word("FILTER") and self._next.token_type is TokenType.L_PAREN:
            self._advance(2)
            self._expect_words("WHERE")
            call.set("filter", self._expression())
            self._expect(TokenType.R_PAREN, ")")
            self._node(call, start)
        return self._over(call, start) if self._is_word("OVER") else call

    def _over(self, call: nodes.FunctionCall, start: Token) -> exp.Expr:
        name = str(call.args["name"]).upper()
        if name not in RANK_FUNCTIONS:
            hint = f"{', '.join(f'{f}()' for f in sorted(RANK_FUNCTIONS))} OVER are there."
            raise self._refuse(f"{name}() OVER", self._span_from(start), hint)
        self._expect_words("OVER")
        if self._curr.token_type is not TokenType.L_PAREN:
            raise self._refuse("a named window behind OVER", hint="Write the window itself: OVER (ORDER BY …).")
        self._advance()
        partition: list[exp.Expr] = []
        if self._take_words("PARTITION"):
            self._expect_words("BY")
            partition = self._list_of(self._expression)
        order = self._order_by() if self._is_word("ORDER") else []
        if self._is_word("ROWS", "RANGE"):
            raise self._fail(f"{name}() takes no frame", hint="It ranks all rows of the partition.")
        if not self._match(TokenType.R_PAREN):
            raise self._unexpected("PARTITION BY, ORDER BY or ')'", ("PARTITION", "ORDER"))
        return self._node(nodes.OverCall(this=call, partition=partition, order=order), start)

    def _order_by(self) -> list[nodes.OrderItem]:
        self._expect_words("ORDER", "BY")
        return self._list_of(self._order_item)

    def _order_item(self) -> nodes.OrderItem:
        start = self._curr
        item = nodes.OrderItem(this=self._expression())
        if self._is_word("ASC", "DESC"):
            item.set("descending", self._is_word("DESC"))
            self._advance()
        if self._take_words("NULLS"):
            if not self._is_word("FIRST", "LAST"):
                raise self._unexpected("FIRST or LAST", ("FIRST", "LAST"))
            item.set("nulls_first", self._is_word("FIRST"))
            self._advance()
        return self._node(item, start)

    def _argument(self) -> exp.Expr:
        start = self._curr
        if self._next.token_type is TokenType.FARROW:
            name = self._identifier("an argument name") if self._at_name() else self._any_word()
            self._advance()
            return self._node(nodes.NamedArgument(name=name, this=self._argument()), start)
        if self._is_word("TABLE"):
            return self._table_argument(start)
        if self._is_word("DESCRIPTOR") and self._next.token_type is TokenType.L_PAREN:
            self._advance()
            columns = self._in_parentheses(lambda: self._list_of(lambda: self._identifier("a column")))
            return self._node(nodes.Descriptor(expressions=columns), start)
        if self._is_word("SELECT", "WITH"):
            raise self._refuse("a sub-query as an argument")
        if self._match(TokenType.STAR):
            raise self._fail("'*' stands alone between the brackets, as in COUNT(*)", self._token_span(start))
        return self._expression()

    def _any_word(self) -> exp.Identifier:
        """A named argument may be a reserved word, e.g. OFFSET, though Flink wants it quoted."""
        token = self._curr
        if token.token_type is not TokenType.VAR:
            raise self._unexpected("an argument name")
        self._advance()
        return self._node(exp.Identifier(this=token.text), token)

    def _table_argument(self, start: Token) -> exp.Expr:
        self._expect_words("TABLE")
        if self._curr.token_type is TokenType.L_PAREN:
            source: exp.Expr = self._subquery(self._curr)
        else:
            source = self._path()
        argument = nodes.TableArgument(this=source)
        clause_start = self._curr
        if self._is_word("PARTITION", "ORDER"):
            # The function's name decides whether it may stand here.
            self._advance()
            self._expect_words("BY")
            self._order_item()
            name = exp.Identifier(this=f"{clause_start.text.upper()} BY")
            argument.set("clause", self._node(name, clause_start))
        return self._node(argument, start)

    def _cast(self, name: str, start: Token) -> exp.Expr:
        operand = self._expression()
        self._expect_words("AS")
        target = self._type()
        node: exp.Expr = exp.Cast(this=operand, to=target)
        if name == "TRY_CAST":
            node = exp.TryCast(this=operand, to=target)
        return self._close_call(node, start)

    def _unit(self) -> nodes.UnitWord:
        token = self._curr
        if not self._is_word(*TIME_UNITS):
            raise self._unexpected("a time unit such as SECOND, HOUR or DAY", tuple(TIME_UNITS))
        self._advance()
        return self._node(nodes.UnitWord(this=token.text.upper().removeprefix("SQL_TSI_")), token)

    def _extract(self, start: Token) -> exp.Expr:
        unit = self._unit()
        self._expect_words("FROM")
        return self._close_call(exp.Extract(this=unit, expression=self._expression()), start)

    def _unit_first(self, start: Token) -> exp.Expr:
        arguments: list[exp.Expr] = [self._unit()]
        while self._match(TokenType.COMMA):
            arguments.append(self._expression())
        return self._close_call(nodes.FunctionCall(name=start.text, expressions=arguments), start)

    def _rounding(self, name: str, start: Token) -> exp.Expr:
        operand = self._expression()
        function = "CEIL" if name == "CEILING" else name
        if self._take_words("TO"):
            unit = self._unit()
            return self._close_call(nodes.TimeRounding(function=function, this=operand, unit=unit), start)
        return self._close_call(nodes.FunctionCall(name=function, expressions=[operand]), start)

    def _trim(self, start: Token) -> exp.Expr:
        side = "BOTH"
        has_side = self._is_word("BOTH", "LEADING", "TRAILING")
        if has_side:
            side = self._curr.text.upper()
            self._advance()
        if has_side and self._take_words("FROM"):
            return self._close_call(nodes.TrimCall(this=self._expression(), side=side), start)
        first = self._expression()
        if self._take_words("FROM"):
            node = nodes.TrimCall(this=self._expression(), side=side, characters=first)
        elif has_side:
            raise self._unexpected("FROM", ("FROM",))
        else:
            node = nodes.TrimCall(this=first, side=side)
        return self._close_call(node, start)

    def _substring(self, start: Token) -> exp.Expr:
        arguments = [self._expression()]
        if self._take_words("FROM"):
            arguments.append(self._expression())
            if self._take_words("FOR"):
                arguments.append(self._expression())
        else:
            while self._match(TokenType.COMMA):
                arguments.append(self._expression())
        return self._close_call(nodes.FunctionCall(name=start.text, expressions=arguments), start)

    def _position(self, start: Token) -> exp.Expr:
        # The needle ends before IN, which would otherwise be read as the operator.
        needle = self._climb(RANGE_LEVEL + 1)
        self._expect_words("IN")
        arguments = [needle, self._expression()]
        if self._is_word("FROM"):
            raise self._refuse("POSITION(… FROM …)")
        return self._close_call(nodes.FunctionCall(name=start.text, expressions=arguments), start)

    def _json_value(self, start: Token) -> exp.Expr:
        operand = self._expression()
        self._expect(TokenType.COMMA, ",")
        path = self._expression()
        returning = self._type() if self._take_words("RETURNING") else None
        behaviours: dict[str, tuple[str, exp.Expr | None]] = {}
        while self._is_word("NULL", "ERROR", "DEFAULT"):
            at = self._curr
            self._advance()
            mode = at.text.upper()
            default = self._expression() if mode == "DEFAULT" else None
            self._expect_words("ON")
            if not self._is_word("EMPTY", "ERROR"):
                raise self._unexpected("EMPTY or ERROR", ("EMPTY", "ERROR"))
            event = self._curr.text.upper()
            self._advance()
            if event in behaviours:
                raise self._fail(f"ON {event} is given twice", self._span_from(at))
            behaviours[event] = (mode, default)
        on_empty, empty_default = behaviours.get("EMPTY", ("NULL", None))
        on_error, error_default = behaviours.get("ERROR", ("NULL", None))
        node = nodes.JsonValueCall(
            this=operand,
            path=path,
            returning=returning,
            on_empty=on_empty,
            empty_default=empty_default,
            on_error=on_error,
            error_default=error_default,
        )
        return self._close_call(node, start)
