"""The grammar of definitions and of INSERT."""

from __future__ import annotations

import msgspec
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from planner.errors import Span
from planner.sql import nodes
from planner.sql import statements as st
from planner.sql.query_parser import QueryParser

_LIKE_WORDS = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")
_CONFLICT_ACTIONS = ("NOTHING", "ERROR", "DEDUPLICATE")


class _TableBody(msgspec.Struct):
    """What the brackets of CREATE TABLE held so far."""

    columns: list[st.ColumnSyntax]
    watermark: st.WatermarkSyntax | None = None
    primary_key: st.PrimaryKeySyntax | None = None


class DdlParser(QueryParser):
    """CREATE and DROP of tables and views, INSERT."""

    def _source(self, start: Token) -> st.StatementSource:
        """The statement's text, from its first token `start` to the last one read."""
        span = self._span_from(start)
        return st.StatementSource(self.script, self._text_of(span), span)

    def _create(self, start: Token) -> st.CreateTable | st.CreateView:
        self._expect_words("CREATE")
        if self._is_word("OR"):
            raise self._refuse("CREATE OR …")
        is_temporary = self._take_words("TEMPORARY")
        if self._take_words("TABLE"):
            return self._create_table(start, is_temporary)
        if self._take_words("VIEW"):
            return self._create_view(start, is_temporary)
        kinds = ("SYSTEM", "FUNCTION", "CATALOG", "DATABASE", "MODEL", "MATERIALIZED", "CONNECTION")
        if self._is_word(*kinds):
            raise self._refuse(f"CREATE {self._curr.text.upper()}")
        raise self._unexpected("TABLE or VIEW", ("TABLE", "VIEW", "TEMPORARY"))

    def _if_not_exists(self) -> bool:
        return self._take_words("IF", "NOT", "EXISTS")

    def _comment(self) -> str | None:
        return self._string("a quoted comment") if self._take_words("COMMENT") else None

    # -- tables -------------------------------------------------------------------------------------

    def _create_table(self, start: Token, is_temporary: bool) -> st.CreateTable:
        if_not_exists = self._if_not_exists()
        name = self._name("a table name")
        body = _TableBody([])
        if self._match(TokenType.L_PAREN):
            self._list_of(lambda: self._table_element(body))
            if not self._match(TokenType.R_PAREN):
                raise self._unexpected("',' or ')'", ("NOT", "COMMENT", "METADATA", "PRIMARY"))
        comment = self._comment()
        if self._is_word("DISTRIBUTED"):
            raise self._refuse("DISTRIBUTED BY")
        if self._is_word("PARTITIONED"):
            raise self._refuse("PARTITIONED BY")
        options: tuple[st.OptionItem, ...] = ()
        if self._take_words("WITH"):
            options = self._option_list()
        if self._is_word("AS"):
            raise self._refuse("CREATE TABLE … AS", hint="Create the table, then INSERT INTO it.")
        like = self._like_clause() if self._is_word("LIKE") else None
        self._expect_end(("WITH", "COMMENT", "LIKE"))
        return st.CreateTable(
            source=self._source(start),
            name=name,
            columns=tuple(body.columns),
            watermark=body.watermark,
            primary_key=body.primary_key,
            options=options,
            comment=comment,
            like=like,
            is_temporary=is_temporary,
            if_not_exists=if_not_exists,
        )

    def _table_element(self, body: _TableBody) -> None:
        start = self._curr
        if self._is_word("WATERMARK") and self._next_is_word("FOR"):
            if body.watermark is not None:
                raise self._fail("a table has one WATERMARK only")
            body.watermark = self._watermark()
        elif self._is_word("CONSTRAINT"):
            self._advance()
            constraint_name = self._identifier("a constraint name").this
            self._set_primary_key(body, self._primary_key(start, constraint_name))
        elif self._is_word("PRIMARY") and self._next_is_word("KEY"):
            self._set_primary_key(body, self._primary_key(start, None))
        elif self._is_word("UNIQUE") and self._next.token_type is TokenType.L_PAREN:
            raise self._refuse("UNIQUE constraints")
        elif self._is_word("PERIOD") and self._next_is_word("FOR"):
            raise self._refuse("PERIOD FOR")
        else:
            self._column(body)

    def _set_primary_key(self, body: _TableBody, key: st.PrimaryKeySyntax) -> None:
        if body.primary_key is not None:
            raise self._fail("a table has one PRIMARY KEY only", key.span)
        body.primary_key = key

    def _primary_key(self, start: Token, name: str | None) -> st.PrimaryKeySyntax:
        self._expect_words("PRIMARY", "KEY")
        columns = self._column_names()
        is_enforced = self._enforcement()
        return st.PrimaryKeySyntax(
            name=name,
            columns=tuple(c.this for c in columns),
            column_spans=tuple(nodes.span_of(c) for c in columns),
            span=self._span_from(start),
            is_enforced=is_enforced,
        )

    def _enforcement(self) -> bool:
        """Whether the key is declared as enforced, which is also what silence means."""
        if self._take_words("NOT", "ENFORCED"):
            return False
        self._take_words("ENFORCED")
        return True

    def _watermark(self) -> st.WatermarkSyntax:
        start = self._curr
        self._expect_words("WATERMARK", "FOR")
        name_start = self._curr
        parts = [self._identifier("the time column").this]
        while self._match(TokenType.DOT):
            parts.append(self._identifier("a field").this)
        column = st.Name(tuple(parts), self._span_from(name_start))
        if not self._take_words("AS"):
            raise self._unexpected("AS and the watermark's expression", ("AS",))
        expression = self._expr()
        return st.WatermarkSyntax(column, expression, self._span_from(start))

    def _expr(self) -> st.Expr:
        start = self._curr
        tree = self._expression()
        span = self._span_from(start)
        return st.Expr(tree, self._text_of(span), span)

    def _column(self, body: _TableBody) -> None:
        start = self._curr
        name = self._identifier("a column name").this
        if self._take_words("AS"):
            expression = self._expr()
            comment = self._comment()
            body.columns.append(st.ComputedColumnSyntax(name, self._span_from(start), expression, comment))
            return
        type_node = self._type()
        type_syntax = st.TypeSyntax(type_node, nodes.span_of(type_node))
        is_not_null = type_node.args.get("nullable") is False
        if self._take_words("METADATA"):
            body.columns.append(self._metadata_column(name, start, type_syntax, is_not_null))
            return
        is_primary_key = False
        if self._is_word("CONSTRAINT"):
            raise self._refuse("named constraints of a column", hint="Write the constraint on its own.")
        if self._is_word("PRIMARY"):
            key_start = self._curr
            self._advance()
            self._expect_words("KEY")
            is_primary_key = True
            key = st.PrimaryKeySyntax(
                None,
                (name,),
                (self._token_span(start),),
                self._span_from(key_start),
                self._enforcement(),
            )
            self._set_primary_key(body, key)
        if self._is_word("UNIQUE", "DEFAULT", "GENERATED", "CHECK", "REFERENCES"):
            raise self._refuse(f"{self._curr.text.upper()} of a column")
        comment = self._comment()
        body.columns.append(
            st.PhysicalColumnSyntax(name, self._span_from(start), type_syntax, is_not_null, is_primary_key, comment)
        )

    def _metadata_column(
        self, name: str, start: Token, type_syntax: st.TypeSyntax, is_not_null: bool
    ) -> st.MetadataColumnSyntax:
        key = self._string("a quoted metadata key") if self._take_words("FROM") else name
        is_virtual = self._take_words("VIRTUAL")
        comment = self._comment()
        span = self._span_from(start)
        return st.MetadataColumnSyntax(name, span, type_syntax, is_not_null, key, is_virtual, comment)

    def _like_clause(self) -> st.LikeSyntax:
        start = self._curr
        self._expect_words("LIKE")
        source = self._name("a table")
        options: list[tuple[str, str]] = []
        if self._match(TokenType.L_PAREN):
            while not self._match(TokenType.R_PAREN):
                self._match(TokenType.COMMA)
                options.append(self._like_option())
        return st.LikeSyntax(source, tuple(options), self._span_from(start))

    def _like_option(self) -> tuple[str, str]:
        modes = ("INCLUDING", "EXCLUDING", "OVERWRITING")
        if not self._is_word(*modes):
            raise self._unexpected("INCLUDING, EXCLUDING or OVERWRITING", modes)
        mode = self._curr.text.upper()
        self._advance()
        if not self._is_word(*_LIKE_WORDS):
            raise self._unexpected("what to copy, such as ALL or OPTIONS", _LIKE_WORDS)
        what = self._curr.text.upper()
        self._advance()
        return mode, what

    # -- views and DROP -----------------------------------------------------------------------------

    def _create_view(self, start: Token, is_temporary: bool) -> st.CreateView:
        if_not_exists = self._if_not_exists()
        name = self._name("a view name")
        columns = self._column_names() if self._curr.token_type is TokenType.L_PAREN else []
        comment = self._comment()
        if not self._take_words("AS"):
            raise self._unexpected("AS and a query", ("AS",))
        query = self.query()
        return st.CreateView(
            source=self._source(start),
            name=name,
            columns=tuple(c.this for c in columns),
            query=query,
            comment=comment,
            is_temporary=is_temporary,
            if_not_exists=if_not_exists,
        )

    def _drop(self, start: Token) -> st.DropTable | st.DropView | st.DropSavepoint:
        self._expect_words("DROP")
        if self._take_words("SAVEPOINT"):
            path = self._string("the savepoint's quoted path")
            self._expect_end()
            return st.DropSavepoint(source=self._source(start), path=path)
        is_temporary = self._take_words("TEMPORARY")
        is_view = self._is_word("VIEW")
        if not self._is_word("TABLE", "VIEW"):
            kinds = ("SYSTEM", "FUNCTION", "CATALOG", "DATABASE", "MODEL", "MATERIALIZED", "CONNECTION")
            if self._is_word(*kinds):
                raise self._refuse(f"DROP {self._curr.text.upper()}")
            raise self._unexpected("TABLE, VIEW or SAVEPOINT", ("TABLE", "VIEW", "TEMPORARY", "SAVEPOINT"))
        self._advance()
        if_exists = self._take_words("IF", "EXISTS")
        name = self._name("a view" if is_view else "a table")
        self._expect_end(("IF",))
        source = self._source(start)
        if is_view:
            return st.DropView(source=source, name=name, is_temporary=is_temporary, if_exists=if_exists)
        return st.DropTable(source=source, name=name, is_temporary=is_temporary, if_exists=if_exists)

    # -- INSERT -------------------------------------------------------------------------------------

    def _insert(self, start: Token) -> st.Insert:
        self._expect_words("INSERT")
        if self._is_word("OVERWRITE"):
            raise self._refuse("INSERT OVERWRITE")
        self._expect_words("INTO")
        target = self._name("a table")
        options = self._options_hint()
        if self._is_word("PARTITION"):
            raise self._refuse("INSERT INTO … PARTITION")
        columns: tuple[st.Name, ...] = ()
        if self._curr.token_type is TokenType.L_PAREN and not self._next_is_word("SELECT", "WITH", "VALUES"):
            columns = tuple(st.Name((c.this,), nodes.span_of(c)) for c in self._column_names_of_insert())
        query_start = self._curr
        node = self._query()
        query_span = self._span_from(query_start)
        query = st.Query(node, self._text_of(query_span), query_span)
        conflict = self._conflict_clause()
        return st.Insert(
            source=self._source(start),
            target=target,
            columns=columns,
            query=query,
            options=options,
            conflict=conflict,
        )

    def _conflict_clause(self) -> st.ConflictClause | None:
        start = self._curr
        if not self._take_words("ON"):
            return None
        self._expect_words("CONFLICT", "DO")
        if not self._is_word(*_CONFLICT_ACTIONS):
            raise self._unexpected("NOTHING, ERROR or DEDUPLICATE", _CONFLICT_ACTIONS)
        action = self._curr.text.upper()
        self._advance()
        return st.ConflictClause(action, self._span_from(start))

    def _column_names_of_insert(self) -> list[exp.Identifier]:
        return self._in_parentheses(lambda: self._list_of(self._insert_column))

    def _insert_column(self) -> exp.Identifier:
        column = self._identifier("a column name")
        if self._curr.token_type is TokenType.DOT:
            raise self._refuse("a field of a ROW in an INSERT's column list")
        return column

    def _statement_set(self, start: Token, end_words: tuple[str, ...]) -> st.StatementSet:
        """`INSERT …; INSERT …; END` after BEGIN."""
        inserts: list[st.Insert] = []
        while not self._is_word(*end_words):
            if not self._curr:
                raise self._unexpected("END of the statement set", ("END",))
            if not self._is_word("INSERT"):
                raise self._unexpected("INSERT INTO or END", ("INSERT", "END"))
            inserts.append(self._insert(self._curr))
            if not self._match(TokenType.SEMICOLON):
                raise self._unexpected("';'")
        self._advance()
        span = self._span_from(start)
        if not inserts:
            raise self._fail("a statement set needs at least one INSERT INTO", Span(span.start, span.end))
        self._expect_end()
        return st.StatementSet(
            source=self._source(start),
            inserts=tuple(inserts),
        )
