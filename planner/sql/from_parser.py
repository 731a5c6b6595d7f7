"""The grammar of FROM: tables, joins, sub-queries, table functions, aliases, and hints.

What of Flink SQL's FROM is not planned is recognised and refused by name at its place.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from planner.errors import Span, SqlError
from planner.sql import nodes
from planner.sql.call_parser import CallParser
from planner.sql.cursor import TokenCursor, too_complex
from planner.sql.splitter import StatementText
from planner.sql.statements import Hint, Name, OptionItem

JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ASOF")
_QUERY_WORDS = ("SELECT", "WITH", "VALUES")
_QUERY_CONTINUATIONS = ("UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "LIMIT", "OFFSET", "FETCH")
_RELATIONS_MAX = 64
"""Tables of one FROM clause; each join makes the plan one level deeper."""
FEATURE_OF_WORD = {
    "MATCH_RECOGNIZE": "MATCH_RECOGNIZE",
    "PIVOT": "PIVOT",
    "UNPIVOT": "UNPIVOT",
    "TABLESAMPLE": "TABLESAMPLE",
    "WINDOW": "the WINDOW clause",
    "FOR": "FOR SYSTEM_TIME AS OF behind anything but a table's name",
    "EMIT": "EMIT",
}


class FromParser(CallParser):
    """`_from` reads all of FROM."""

    def _query(self) -> nodes.QueryNode:
        raise NotImplementedError

    # -- FROM ---------------------------------------------------------------------------------------

    def _from(self) -> exp.Expr:
        """Tables joined by commas and JOINs, from left to right: both bind alike, as in Flink."""
        start = self._curr
        table = self._table()
        relations = 1
        while True:
            if self._match(TokenType.COMMA):
                right = self._table()
                table = self._node(nodes.JoinTable(this=table, expression=right, kind="COMMA"), start)
            elif self._is_word(*JOIN_WORDS) or (self._is_word("SEMI", "ANTI") and self._next_is_word("JOIN")):
                table = self._join(table, start)
            else:
                return table
            relations += 1
            if relations > _RELATIONS_MAX:
                message = f"more than {_RELATIONS_MAX} tables in one FROM"
                hint = "Join some of them in a query in FROM, or in a view."
                raise too_complex(message, self._token_span(self._prev), hint, self.script)

    def _join(self, left: exp.Expr, start: Token) -> exp.Expr:
        join_start = self._curr
        is_natural = self._take_words("NATURAL")
        kind = self._join_kind()
        if not self._take_words("JOIN"):
            if kind == "CROSS" and self._is_word("APPLY"):
                raise self._refuse("CROSS APPLY", self._span_from(join_start), "Use CROSS JOIN UNNEST or a join.")
            raise self._unexpected("JOIN", ("JOIN",))
        words = self._span_from(join_start)
        join = nodes.JoinTable(this=left, expression=self._table(), kind=kind, natural=is_natural)
        if self._is_word("ON", "USING"):
            if is_natural or kind == "CROSS":
                what = "NATURAL" if is_natural else "CROSS"
                hint = "Write INNER JOIN for a join with a condition." if kind == "CROSS" else ""
                message = f"a {what} JOIN has no {self._curr.text.upper()}"
                raise self._fail(message, hint=hint)
            if self._take_words("ON"):
                join.set("on", self._expression())
            else:
                self._expect_words("USING")
                join.set("using", self._column_names())
        elif not is_natural and kind != "CROSS":
            message = f"{self._text_of(words)} without a condition"
            hint = "Write ON condition or USING (columns) behind the table; CROSS JOIN takes none."
            raise self._fail(message, words, hint)
        return self._node(join, start)

    def _join_kind(self) -> str:
        """INNER, LEFT [OUTER], RIGHT [OUTER], FULL [OUTER], CROSS or nothing, up to JOIN."""
        start = self._curr
        kind = "INNER"
        if self._is_word("INNER", "LEFT", "RIGHT", "FULL", "CROSS"):
            kind = self._curr.text.upper()
            self._advance()
            if kind in ("LEFT", "RIGHT", "FULL"):
                self._take_words("OUTER")
        if self._is_word("SEMI", "ANTI") and self._next_is_word("JOIN"):
            self._advance()
            raise self._refuse_semi_join(start)
        if self._is_word("ASOF"):
            self._advance()
            hint = "Join a versioned table FOR SYSTEM_TIME AS OF a time attribute of the left side."
            raise self._refuse("ASOF JOIN", self._span_from(start), hint)
        return kind

    def _refuse_semi_join(self, start: Token) -> SqlError:
        """The words up to SEMI or ANTI have been read."""
        test = "EXISTS" if self._prev.text.upper() == "SEMI" else "NOT EXISTS"
        self._advance()
        words = self._span_from(start)
        hint = f"Flink SQL writes it WHERE {test} (SELECT … WHERE …), or with IN."
        return self._refuse(self._text_of(words).upper(), words, hint)

    def _table(self) -> exp.Expr:
        start = self._curr
        self._refuse_clause()
        table: exp.Expr
        if self._is_word("LATERAL"):
            table = self._lateral(start)
        elif self._is_word("UNNEST") and self._next.token_type is TokenType.L_PAREN:
            table = self._unnest(start)
        elif self._is_word("TABLE") and self._next.token_type is TokenType.L_PAREN:
            self._advance()
            table = self._in_parentheses(self._table_function)
        elif self._curr.token_type is TokenType.L_PAREN:
            table = self._subquery(start)
        elif self._at_name() and self._next.token_type is TokenType.L_PAREN:
            table = self._table_function()
        else:
            path = self._path_of_table()
            table = self._node(nodes.TableName(this=path, options=self._options_hint()), start)
            if self._is_word("FOR"):
                table.set("as_of", self._system_time())
        self._refuse_clause()
        self._table_alias(table)
        self._refuse_clause()
        return table if isinstance(table, nodes.JoinTable) else self._node(table, start)

    def _system_time(self) -> exp.Expr:
        """`FOR SYSTEM_TIME AS OF time`."""
        self._expect_words("FOR", "SYSTEM_TIME", "AS", "OF")
        return self._expression()

    def _lateral(self, start: Token) -> exp.Expr:
        self._expect_words("LATERAL")
        if self._curr.token_type is TokenType.L_PAREN and self._next_is_word(*_QUERY_WORDS):
            table = self._subquery(start)
            table.set("lateral", True)
            return table
        if self._is_word("UNNEST") and self._next.token_type is TokenType.L_PAREN:
            return self._unnest(start)
        if self._is_word("TABLE") or (self._at_name() and self._next.token_type is TokenType.L_PAREN):
            name = self._tokens[min(self._index + 2, self._tokens_size - 1)] if self._is_word("TABLE") else self._curr
            hint = "There are no table functions of users yet; UNNEST spreads arrays and maps."
            raise self._refuse(f"LATERAL TABLE({name.text}(…))", self._span_from(start), hint)
        raise self._unexpected("(query), UNNEST or TABLE behind LATERAL", ("UNNEST", "TABLE"))

    def _unnest(self, start: Token) -> exp.Expr:
        self._expect_words("UNNEST")
        items = self._in_parentheses(lambda: self._list_of(self._expression))
        if len(items) > 1:
            place = self._span_from(start)
            raise self._refuse("UNNEST of several collections", place, "Join one UNNEST after the other.")
        with_ordinality = self._take_words("WITH", "ORDINALITY")
        return self._node(nodes.UnnestTable(this=items[0], ordinality=with_ordinality), start)

    def _path_of_table(self) -> nodes.NamePath:
        name_start = self._curr
        parts = [self._identifier("a table")]
        while self._match(TokenType.DOT):
            parts.append(self._identifier("a table"))
        return self._node(nodes.NamePath(expressions=parts), name_start)

    def _subquery(self, start: Token) -> exp.Expr:
        """`(query)`, or `(table [join …])` in brackets of its own."""
        if not self._query_in_parentheses():
            return self._in_parentheses(self._from)
        query = self._in_parentheses(self._query)
        return self._node(nodes.DerivedTable(this=query), start)

    def _query_in_parentheses(self) -> bool:
        """Whether the bracket here holds a query: one begins in it, alone or as a branch of a set operation."""
        if self._next.token_type is not TokenType.L_PAREN:
            return self._next_is_word(*_QUERY_WORDS)
        opened = self._index + 1
        first = opened
        while self._tokens[first].token_type is TokenType.L_PAREN and first + 1 < self._tokens_size:
            first += 1
        if self._tokens[first].text.upper() not in _QUERY_WORDS:
            return False
        depth = 0
        for index in range(opened, self._tokens_size - 1):
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._tokens[index].token_type, 0)
            if depth == 0:
                behind = self._tokens[index + 1]
                return behind.token_type is TokenType.R_PAREN or behind.text.upper() in _QUERY_CONTINUATIONS
        return True

    def _table_function(self) -> exp.Expr:
        start = self._curr
        name = self._identifier("a table function")
        arguments: list[exp.Expr] = []
        self._expect(TokenType.L_PAREN, "(")
        if self._curr.token_type is not TokenType.R_PAREN:
            arguments = self._list_of(self._table_function_argument)
        if not self._match(TokenType.R_PAREN):
            raise self._unexpected("',' or ')'")
        return self._node(nodes.TableFunctionCall(name=name, expressions=arguments), start)

    def _table_function_argument(self) -> exp.Expr:
        """An argument; a sub-query may stand without TABLE before it."""
        start = self._curr
        if start.token_type is TokenType.L_PAREN and self._next_is_word("SELECT", "WITH", "VALUES"):
            return self._node(nodes.TableArgument(this=self._subquery(start)), start)
        return self._argument()

    def _table_alias(self, table: exp.Expr) -> None:
        start = self._curr
        if self._is_word("SEMI", "ANTI") and self._next_is_word("JOIN"):
            self._advance()
            raise self._refuse_semi_join(start)
        if self._take_words("AS") or self._at_name():
            name = self._identifier("an alias")
        else:
            return
        if isinstance(table, nodes.JoinTable):
            hint = "Give the tables inside names of their own, or write (SELECT … FROM …) AS name."
            raise self._fail("a name for a join in brackets", self._span_from(start), hint)
        if table.args.get("alias") is not None:
            raise self._fail("a second alias", self._span_from(start))
        columns = self._column_names() if self._curr.token_type is TokenType.L_PAREN else []
        table.set("alias", self._node(nodes.TableAlias(name=name, columns=columns), start))

    def _refuse_clause(self) -> None:
        """Refuses by name what Flink SQL could continue with here."""
        if self._curr.token_type is TokenType.VAR:
            word = self._curr.text.upper()
            if word in FEATURE_OF_WORD:
                raise self._refuse(FEATURE_OF_WORD[word])
        if self._curr.token_type is TokenType.HINT:
            raise self._refuse(f"the hint {self._curr.text}")

    def _column_names(self) -> list[exp.Identifier]:
        return self._in_parentheses(lambda: self._list_of(lambda: self._identifier("a column name")))

    # -- hints --------------------------------------------------------------------------------------

    def _options_hint(self) -> tuple[OptionItem, ...]:
        """`/*+ OPTIONS('key' = 'value', …) */` behind a table's name."""
        if self._curr.token_type is not TokenType.HINT:
            return ()
        return self._hint_parser().options_hint()

    def _select_hints(self) -> tuple[Hint, ...]:
        """`/*+ STATE_TTL('table' = '1 d'), LOOKUP(…), BROADCAST(table) */` behind SELECT."""
        if self._curr.token_type is not TokenType.HINT:
            return ()
        return self._hint_parser().select_hints()

    def _hint_parser(self) -> HintParser:
        token = self._curr
        self._advance()
        body_start = token.start + self.offset + len("/*+")
        body_end = token.end + 1 + self.offset - len("*/")
        text = StatementText(self.script[body_start:body_end], Span(body_start, body_end))
        return HintParser(text, self.script)


class HintParser(TokenCursor):
    """The inside of a hint comment."""

    def select_hints(self) -> tuple[Hint, ...]:
        hints = self._list_of(self._hint)
        self._expect_end()
        return tuple(hints)

    def _hint(self) -> Hint:
        start = self._curr
        if start.token_type is not TokenType.VAR:
            raise self._unexpected("a hint such as STATE_TTL('table' = '1 d')")
        self._advance()
        options: tuple[OptionItem, ...] = ()
        names: list[Name] = []
        if self._curr.token_type is TokenType.L_PAREN:
            if self._next.token_type is TokenType.STRING:
                options = self._option_list()
            else:
                names = self._in_parentheses(lambda: self._list_of(lambda: self._name("a table")))
        return Hint(start.text.upper(), options, tuple(names), self._span_from(start))

    def options_hint(self) -> tuple[OptionItem, ...]:
        if not self._take_words("OPTIONS"):
            raise self._refuse("any hint but OPTIONS")
        items = self._option_list()
        self._expect_end()
        return items
