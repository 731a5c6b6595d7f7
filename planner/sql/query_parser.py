"""The grammar of queries: WITH, set operations, SELECT, VALUES, ORDER BY, LIMIT and FETCH.

Clauses of Flink SQL that are not planned yet are recognised and refused by name at their place.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from planner.sql import nodes
from planner.sql.cursor import too_complex
from planner.sql.from_parser import FEATURE_OF_WORD, FromParser
from planner.sql.statements import Query

_OPERATIONS_MAX = 100
"""Set operations in a row: what walks the tree of more would run out of stack."""
_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "UNION", "INTERSECT", "EXCEPT", "LIMIT", "ORDER", "FETCH")


class QueryParser(FromParser):
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
            node.set("order", self._order_by())
        self._row_count(node)
        self._refuse_clause()
        return self._node(node, start)

    def _row_count(self, node: nodes.QueryNode) -> None:
        """`LIMIT n [OFFSET m]`, `OFFSET m [ROWS] [LIMIT n | FETCH NEXT n ROWS ONLY]` or FETCH alone."""
        has_limit = self._limit(node)
        if self._take_words("OFFSET"):
            node.set("offset", self._number_literal("OFFSET"))
            if self._is_word("ROW", "ROWS"):
                self._advance()
            has_limit = has_limit or self._limit(node)
        if self._is_word("FETCH"):
            if has_limit:
                raise self._fail("LIMIT and FETCH in one query")
            self._fetch(node)

    def _limit(self, node: nodes.QueryNode) -> bool:
        if not self._take_words("LIMIT"):
            return False
        if self._is_word("ALL"):
            self._advance()
        else:
            node.set("limit", self._number_literal("LIMIT"))
        return True

    def _fetch(self, node: nodes.QueryNode) -> None:
        self._expect_words("FETCH")
        if not self._is_word("FIRST", "NEXT"):
            raise self._unexpected("FIRST or NEXT", ("FIRST", "NEXT"))
        self._advance()
        node.set("limit", self._number_literal("FETCH"))
        if not self._is_word("ROW", "ROWS"):
            raise self._unexpected("ROWS ONLY", ("ROW", "ROWS"))
        self._advance()
        if self._is_word("WITH") and self._next_is_word("TIES"):
            hint = "Number the rows in a sub-query with RANK() OVER (ORDER BY …), and keep those WHERE the rank <= n."
            raise self._refuse("FETCH … WITH TIES", hint=hint)
        self._expect_words("ONLY")

    def _number_literal(self, clause: str) -> exp.Expr:
        start = self._curr
        number = self._integer(f"a whole number after {clause}")
        return self._node(exp.Literal(this=str(number), is_string=False), start)

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

    # -- bodies -------------------------------------------------------------------------------------

    def _set_operations(self) -> exp.Expr:
        """UNION and EXCEPT from left to right; INTERSECT binds tighter."""
        start = self._curr
        left = self._intersections()
        operations = 0
        while self._is_word("UNION", "EXCEPT", "MINUS"):
            operation = self._curr
            kind = "UNION" if self._is_word("UNION") else "EXCEPT"
            self._advance()
            keeps_all = self._all_or_distinct()
            right = self._intersections()
            if kind == "UNION" and keeps_all:
                branches = left.expressions if isinstance(left, nodes.UnionAllQuery) else [left]
                left = self._node(nodes.UnionAllQuery(expressions=[*branches, right]), start)
            else:
                operations += 1
                self._check_operations(operations, operation)
                left = self._node(nodes.SetQuery(this=left, expression=right, kind=kind, all=keeps_all), start)
        self._refuse_clause()
        return left

    def _intersections(self) -> exp.Expr:
        start = self._curr
        left = self._query_term()
        operations = 0
        while self._take_words("INTERSECT"):
            operations += 1
            self._check_operations(operations, self._prev)
            keeps_all = self._all_or_distinct()
            right = self._query_term()
            left = self._node(nodes.SetQuery(this=left, expression=right, kind="INTERSECT", all=keeps_all), start)
        return left

    def _check_operations(self, count: int, token: Token) -> None:
        """UNION ALL apart, each set operation nests what stands before it."""
        if count > _OPERATIONS_MAX:
            word = token.text.upper()
            hint = f"Put brackets around parts of it: (a {word} b) {word} (c {word} d). UNION ALL has no such bound."
            message = f"more than {_OPERATIONS_MAX} set operations in a row"
            raise too_complex(message, self._token_span(token), hint, self.script)

    def _all_or_distinct(self) -> bool:
        if self._take_words("ALL"):
            return True
        self._take_words("DISTINCT")
        return False

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
            return self._whole_table(start)
        raise self._unexpected("SELECT, VALUES or WITH", ("SELECT", "VALUES", "WITH"))

    def _whole_table(self, start: Token) -> exp.Expr:
        """`TABLE t` is `SELECT * FROM t`."""
        self._expect_words("TABLE")
        table_start = self._curr
        table = self._node(nodes.TableName(this=self._path_of_table(), options=()), table_start)
        star = self._node(nodes.SelectItem(this=self._node(nodes.AllColumns(), start)), start)
        return self._node(nodes.SelectQuery(expressions=[star], from_=table), start)

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
        hints = self._select_hints()
        is_distinct = self._take_words("DISTINCT")
        if not is_distinct and self._is_word("ALL", "STREAM"):
            self._advance()
        if self._is_word("TOP") and self._next.token_type is TokenType.NUMBER:
            raise self._refuse("SELECT TOP", hint="Flink SQL writes it ORDER BY … LIMIT n, at the end.")
        select = nodes.SelectQuery(expressions=self._list_of(self._select_item), distinct=is_distinct, hints=hints)
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
        if self._take_words("QUALIFY"):
            select.set("qualify", self._expression())
        self._refuse_clause()
        return self._node(select, start)

    def _select_item(self) -> nodes.SelectItem:
        start = self._curr
        if self._match(TokenType.STAR):
            star = self._node(nodes.AllColumns(), start)
            return self._node(nodes.SelectItem(this=star), start)
        item = nodes.SelectItem(this=self._expression())
        if self._take_words("AS") or (self._at_name() and not self._is_word(*FEATURE_OF_WORD)):
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
