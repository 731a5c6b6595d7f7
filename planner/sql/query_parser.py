"""The grammar of queries: WITH, SELECT, UNION ALL, VALUES, FROM and table functions, LIMIT.

Clauses of Flink SQL that are not planned yet are recognised and refused by name at their place.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from planner.errors import Span
from planner.sql import nodes
from planner.sql.call_parser import CallParser
from planner.sql.cursor import TokenCursor
from planner.sql.splitter import StatementText
from planner.sql.statements import OptionItem, Query

_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "UNION", "LIMIT", "ORDER")
_JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
_FEATURE_OF_WORD = {
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


class QueryParser(CallParser):
    """`_query` reads a whole query, up to what cannot continue it."""

    def query(self) -> Query:
        """The rest of the statement as a query."""
        start = self._curr
        node = self._query()
        self._expect_end(_CLAUSES)
        span = self._span_from(start)
        return Query(node, self._text_of(span), span)

    def _query(self) -> nodes.QueryNode:
        start = self._curr
        ctes = self._with_list() if self._take_words("WITH") else []
        body = self._set_operations()
        node = nodes.QueryNode(ctes=ctes, this=body)
        if self._is_word("ORDER"):
            raise self._refuse("ORDER BY", hint="A stream has no last row to sort by; sort where you read it.")
        if self._take_words("LIMIT"):
            if self._is_word("ALL"):
                self._advance()
            else:
                node.set("limit", self._number_literal("LIMIT"))
        if self._take_words("OFFSET"):
            node.set("offset", self._number_literal("OFFSET"))
            if self._is_word("ROW", "ROWS"):
                self._advance()
        self._refuse_clause()
        return self._node(node, start)

    def _number_literal(self, clause: str) -> exp.Expr:
        start = self._curr
        number = self._integer(f"a whole number after {clause}")
        return self._node(exp.Literal(this=str(number), is_string=False), start)

    def _refuse_clause(self) -> None:
        """Refuses by name what Flink SQL could continue with here."""
        if self._curr.token_type is TokenType.VAR:
            word = self._curr.text.upper()
            if word in _FEATURE_OF_WORD:
                raise self._refuse(_FEATURE_OF_WORD[word])
        if self._curr.token_type is TokenType.HINT:
            raise self._refuse(f"the hint {self._curr.text}")

    def _with_list(self) -> list[nodes.CommonTable]:
        if self._is_word("RECURSIVE"):
            raise self._refuse("WITH RECURSIVE")
        return self._list_of(self._common_table)

    def _common_table(self) -> nodes.CommonTable:
        start = self._curr
        name = self._identifier("a name")
        columns = self._column_names() if self._curr.token_type is TokenType.L_PAREN else []
        self._expect_words("AS")
        query = self._in_parentheses(self._query)
        return self._node(nodes.CommonTable(name=name, columns=columns, this=query), start)

    def _column_names(self) -> list[exp.Identifier]:
        return self._in_parentheses(lambda: self._list_of(lambda: self._identifier("a column name")))

    # -- bodies -------------------------------------------------------------------------------------

    def _set_operations(self) -> exp.Expr:
        start = self._curr
        branches = [self._query_term()]
        while self._is_word("UNION"):
            union = self._curr
            self._advance()
            if not self._take_words("ALL"):
                raise self._refuse("UNION without ALL", self._token_span(union), hint="Use UNION ALL.")
            branches.append(self._query_term())
        self._refuse_clause()
        if len(branches) == 1:
            return branches[0]
        return self._node(nodes.UnionAllQuery(expressions=branches), start)

    def _query_term(self) -> exp.Expr:
        start = self._curr
        if self._curr.token_type is TokenType.L_PAREN:
            return self._in_parentheses(self._query)
        if self._take_words("SELECT"):
            return self._select(start)
        if self._take_words("VALUES"):
            rows = self._list_of(self._values_row)
            return self._node(nodes.ValuesQuery(rows=rows), start)
        if self._is_word("TABLE"):
            raise self._refuse("TABLE as a query", hint="Use SELECT * FROM.")
        raise self._unexpected("SELECT, VALUES or WITH", ("SELECT", "VALUES", "WITH"))

    def _values_row(self) -> exp.Tuple:
        start = self._curr
        if self._is_word("ROW") and self._next.token_type is TokenType.L_PAREN:
            self._advance()
        if self._curr.token_type is TokenType.L_PAREN:
            items = self._in_parentheses(lambda: self._list_of(self._expression))
        else:
            items = [self._expression()]
        return self._node(exp.Tuple(expressions=items), start)

    def _select(self, start: Token) -> nodes.SelectQuery:
        state_ttl = self._state_ttl_hint()
        is_distinct = self._take_words("DISTINCT")
        if not is_distinct and self._is_word("ALL", "STREAM"):
            self._advance()
        select = nodes.SelectQuery(
            expressions=self._list_of(self._select_item), distinct=is_distinct, state_ttl=state_ttl
        )
        if self._take_words("FROM"):
            select.set("from_", self._from())
        if self._take_words("WHERE"):
            select.set("where", self._expression())
        if self._is_word("GROUP"):
            self._advance()
            self._expect_words("BY")
            select.set("group", self._list_of(self._group_item))
        if self._take_words("HAVING"):
            select.set("having", self._expression())
        self._refuse_clause()
        return self._node(select, start)

    def _select_item(self) -> nodes.SelectItem:
        start = self._curr
        if self._match(TokenType.STAR):
            star = self._node(nodes.AllColumns(), start)
            return self._node(nodes.SelectItem(this=star), start)
        item = nodes.SelectItem(this=self._expression())
        if self._take_words("AS") or (self._at_name() and not self._is_word(*_FEATURE_OF_WORD)):
            item.set("alias", self._identifier("an alias"))
        return self._node(item, start)

    def _group_item(self) -> exp.Expr:
        """An expression, `(a, b)`, `()`, ROLLUP, CUBE or GROUPING SETS; the last three nest as Flink's do."""
        start = self._curr
        if self._is_word("GROUPING") and self._next_is_word("SETS"):
            self._advance(2)
            items = self._in_parentheses(lambda: self._list_of(self._group_item))
            return self._node(nodes.GroupingElement(kind="SETS", expressions=items), start)
        if self._is_word("CUBE", "ROLLUP") and self._next.token_type is TokenType.L_PAREN:
            self._advance()
            items = self._in_parentheses(lambda: self._list_of(self._grouping_set))
            return self._node(nodes.GroupingElement(kind=start.text.upper(), expressions=items), start)
        return self._grouping_set()

    def _grouping_set(self) -> exp.Expr:
        start = self._curr
        if self._curr.token_type is TokenType.L_PAREN and self._next.token_type is TokenType.R_PAREN:
            self._advance(2)
            return self._node(nodes.GroupingElement(kind="SET", expressions=[]), start)
        item = self._expression()
        if isinstance(item, exp.Tuple):
            return self._node(nodes.GroupingElement(kind="SET", expressions=item.expressions), start)
        return item

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
