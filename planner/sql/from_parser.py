"""The grammar of FROM: tables, joins, sub-queries, table functions, aliases, and hints.

What of Flink SQL's FROM is not planned is recognised and refused by name at its place.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from planner.errors import Span
from planner.sql import nodes
from planner.sql.call_parser import CallParser
from planner.sql.cursor import TokenCursor
from planner.sql.splitter import StatementText
from planner.sql.statements import OptionItem

_JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
FEATURE_OF_WORD = {
    "MATCH_RECOGNIZE": "MATCH_RECOGNIZE",
    "PIVOT": "PIVOT",
    "UNPIVOT": "UNPIVOT",
    "TABLESAMPLE": "TABLESAMPLE",
    "WINDOW": "the WINDOW clause",
    "QUALIFY": "QUALIFY",
    "FOR": "FOR SYSTEM_TIME AS OF",
    "LATERAL": "LATERAL",
    "UNNEST": "UNNEST",
    "EMIT": "EMIT",
    "INTERSECT": "INTERSECT",
    "EXCEPT": "EXCEPT",
    "MINUS": "MINUS",
    "FETCH": "FETCH",
}


class FromParser(CallParser):
    """`_from` reads all of FROM."""

    def _query(self) -> nodes.QueryNode:
        raise NotImplementedError

    # -- FROM ---------------------------------------------------------------------------------------

    def _from(self) -> exp.Expr:
        table = self._table()
        if self._curr.token_type is TokenType.COMMA:
            raise self._refuse("joins (a comma in FROM)")
        if self._is_word(*_JOIN_WORDS):
            raise self._refuse("joins")
        return table

    def _table(self) -> exp.Expr:
        start = self._curr
        self._refuse_clause()
        table: exp.Expr
        if self._is_word("TABLE") and self._next.token_type is TokenType.L_PAREN:
            self._advance()
            table = self._in_parentheses(self._table_function)
        elif self._curr.token_type is TokenType.L_PAREN:
            table = self._subquery(start)
        elif self._at_name() and self._next.token_type is TokenType.L_PAREN:
            table = self._table_function()
        else:
            path = self._path_of_table()
            table = self._node(nodes.TableName(this=path, options=self._options_hint()), start)
        self._refuse_clause()
        self._table_alias(table)
        self._refuse_clause()
        return self._node(table, start)

    def _path_of_table(self) -> nodes.NamePath:
        name_start = self._curr
        parts = [self._identifier("a table")]
        while self._match(TokenType.DOT):
            parts.append(self._identifier("a table"))
        return self._node(nodes.NamePath(expressions=parts), name_start)

    def _subquery(self, start: Token) -> exp.Expr:
        """`(query)`, or `(table)` in needless brackets."""
        if not self._next_is_word("SELECT", "WITH", "VALUES") and (self._next.token_type is not TokenType.L_PAREN):
            return self._in_parentheses(self._table)
        query = self._in_parentheses(self._query)
        return self._node(nodes.DerivedTable(this=query), start)

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
        if self._take_words("AS") or self._at_name():
            name = self._identifier("an alias")
        else:
            return
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

    def _state_ttl_hint(self) -> tuple[OptionItem, ...]:
        """`/*+ STATE_TTL('table' = '1 d') */` behind SELECT."""
        if self._curr.token_type is not TokenType.HINT:
            return ()
        return self._hint_parser().state_ttl_hint()

    def _hint_parser(self) -> HintParser:
        token = self._curr
        self._advance()
        body_start = token.start + self.offset + len("/*+")
        body_end = token.end + 1 + self.offset - len("*/")
        text = StatementText(self.script[body_start:body_end], Span(body_start, body_end))
        return HintParser(text, self.script)


class HintParser(TokenCursor):
    """The inside of a hint comment."""

    def state_ttl_hint(self) -> tuple[OptionItem, ...]:
        if not self._take_words("STATE_TTL"):
            raise self._refuse("any hint behind SELECT but STATE_TTL")
        items = self._option_list()
        self._expect_end()
        return items

    def options_hint(self) -> tuple[OptionItem, ...]:
        if not self._take_words("OPTIONS"):
            raise self._refuse("any hint but OPTIONS")
        items = self._option_list()
        self._expect_end()
        return items
