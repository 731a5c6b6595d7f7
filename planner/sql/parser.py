"""Text → statements: dispatches on the first words; small statements are read here."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from planner.errors import Span, SqlError, SqlState
from planner.sql import statements as st
from planner.sql.cursor import too_complex
from planner.sql.ddl_parser import DdlParser
from planner.sql.splitter import StatementText, Unfinished, split_statements

_FIRST_WORDS = (
    "SELECT",
    "INSERT",
    "CREATE",
    "DROP",
    "EXPLAIN",
    "EXECUTE",
    "SHOW",
    "DESCRIBE",
    "USE",
    "SET",
    "RESET",
    "STOP",
    "BEGIN",
    "END",
    "WITH",
    "VALUES",
)
_REFUSED_STATEMENTS = frozenset(
    """
    ANALYZE CALL COMPILE ADD REMOVE LOAD UNLOAD DELETE UPDATE MERGE TRUNCATE REPLACE SUBSCRIBE HELP QUIT EXIT
    CLEAR SOURCE
    """.split()
)
_EXPLAIN_DETAILS = (
    "ESTIMATED_COST",
    "CHANGELOG_MODE",
    "JSON_EXECUTION_PLAN",
    "PLAN_ADVICE",
    "ANALYZED_PHYSICAL_PLAN",
)
_SHOW_WORDS = (
    "TABLES",
    "VIEWS",
    "JOBS",
    "SAVEPOINTS",
    "CATALOGS",
    "DATABASES",
    "FUNCTIONS",
    "CURRENT",
    "CREATE",
    "COLUMNS",
    "USER",
)


def parse_script(sql: str) -> list[st.Statement]:
    """See `planner.api.parse`."""
    result = split_statements(sql)
    if result.unfinished in (Unfinished.STRING, Unfinished.IDENTIFIER, Unfinished.COMMENT):
        raise _unfinished_error(sql, result.unfinished, result.unfinished_at or 0)
    return [parse_statement(statement, sql) for statement in result.statements]


def parse_statement(statement: StatementText, script: str) -> st.Statement:
    """One statement that the splitter cut out of `script`."""
    try:
        return StatementParser(statement, script).statement()
    except RecursionError:
        raise too_deep(statement.span, script) from None


def too_deep(span: Span, script: str) -> SqlError:
    """No single bound was passed, but all of it together is more than a stack holds."""
    hint = "Take it apart: brackets around parts of long chains, fewer levels of sub-queries."
    return too_complex("the statement is nested too deeply", span, hint, script)


def _unfinished_error(sql: str, what: Unfinished, at: int) -> SqlError:
    closing = {Unfinished.STRING: "'", Unfinished.IDENTIFIER: "`", Unfinished.COMMENT: "*/"}[what]
    return SqlError(SqlState.SYNTAX_ERROR, f"the {what} has no closing {closing}", span=Span(at, at + 1), text=sql)


class StatementParser(DdlParser):
    """Reads exactly one statement."""

    def statement(self) -> st.Statement:
        start = self._curr
        if start.token_type is TokenType.L_PAREN:
            return self._select_statement(start)
        if start.token_type is not TokenType.VAR:
            raise self._unexpected("a statement")
        word = start.text.upper()
        match word:
            case "SELECT" | "WITH" | "VALUES" | "TABLE":
                return self._select_statement(start)
            case "INSERT":
                insert = self._insert(start)
                self._expect_end()
                return insert
            case "CREATE":
                return self._create(start)
            case "DROP":
                return self._drop(start)
            case "EXPLAIN":
                return self._explain(start)
            case "EXECUTE":
                return self._execute(start)
            case "SHOW":
                return self._show(start)
            case "DESCRIBE" | "DESC":
                return self._describe(start)
            case "USE":
                return self._use(start)
            case "SET" | "RESET":
                return self._setting(word, start)
            case "STOP":
                return self._stop(start)
            case "ALTER":
                return self._alter(start)
            case "BEGIN" | "END":
                return self._statement_set_bracket(word, start)
            case _ if word in _REFUSED_STATEMENTS:
                raise self._refuse(f"the statement {word}")
            case _:
                raise self._unexpected("a statement", _FIRST_WORDS)

    def _select_statement(self, start: Token) -> st.Select:
        query = self.query()
        return st.Select(source=self._source(start), query=query)

    def _explain(self, start: Token) -> st.Explain:
        self._expect_words("EXPLAIN")
        details: list[str] = []
        if not self._take_words("PLAN", "FOR"):
            while self._is_word(*_EXPLAIN_DETAILS):
                details.append(self._curr.text.upper())
                self._advance()
                self._match(TokenType.COMMA)
        inner_start = self._curr
        inner: st.Insert | st.StatementSet | st.Select
        if self._take_words("STATEMENT", "SET", "BEGIN") or self._take_words("EXECUTE", "STATEMENT", "SET", "BEGIN"):
            inner = self._statement_set(inner_start, ("END",))
        elif self._is_word("INSERT"):
            inner = self._insert(inner_start)
            self._expect_end()
        elif self._is_word("SELECT", "WITH", "VALUES", "TABLE") or inner_start.token_type is TokenType.L_PAREN:
            inner = self._select_statement(inner_start)
        else:
            raise self._unexpected("a query or INSERT INTO", ("SELECT", "INSERT", "PLAN", *_EXPLAIN_DETAILS))
        return st.Explain(source=self._source(start), statement=inner, details=tuple(details))

    def _execute(self, start: Token) -> st.Statement:
        self._expect_words("EXECUTE")
        if self._take_words("STATEMENT", "SET"):
            self._expect_words("BEGIN")
            return self._statement_set(start, ("END",))
        if self._is_word("PLAN"):
            raise self._refuse("EXECUTE PLAN")
        if self._is_word("INSERT"):
            insert = self._insert(self._curr)
            self._expect_end()
            return insert
        if self._is_word("SELECT", "WITH", "VALUES", "TABLE"):
            return self._select_statement(self._curr)
        raise self._unexpected("STATEMENT SET", ("STATEMENT", "INSERT"))

    def _statement_set_bracket(self, word: str, start: Token) -> st.BeginStatementSet | st.EndStatementSet:
        self._advance()
        if word == "BEGIN":
            self._expect_words("STATEMENT", "SET")
            self._expect_end()
            return st.BeginStatementSet(source=self._source(start))
        self._expect_end()
        return st.EndStatementSet(source=self._source(start))

    # -- looking around -----------------------------------------------------------------------------

    def _like_filter(self) -> st.LikeFilter | None:
        index = self._index
        is_negated = self._take_words("NOT")
        if self._is_word("ILIKE"):
            raise self._refuse("ILIKE")
        if self._take_words("LIKE"):
            return st.LikeFilter(self._string("a quoted pattern"), is_negated)
        self._retreat(index)
        return None

    def _in_object(self, what: str) -> st.Name | None:
        if self._is_word("FROM", "IN"):
            self._advance()
            return self._name(what)
        return None

    def _show(self, start: Token) -> st.Statement:
        self._expect_words("SHOW")
        if self._curr.token_type is not TokenType.VAR:
            raise self._unexpected("what to show", _SHOW_WORDS)
        word = self._curr.text.upper()
        self._advance()
        match word:
            case "TABLES" | "VIEWS":
                database = self._in_object("a database")
                like = self._like_filter()
                self._expect_end(("FROM", "LIKE"))
                kind = st.ShowTables if word == "TABLES" else st.ShowViews
                return kind(source=self._source(start), database=database, like=like)
            case "CATALOGS":
                like = self._like_filter()
                self._expect_end(("LIKE",))
                return st.ShowCatalogs(source=self._source(start), like=like)
            case "DATABASES":
                catalog = self._in_object("a catalog")
                like = self._like_filter()
                self._expect_end(("FROM", "LIKE"))
                return st.ShowDatabases(source=self._source(start), catalog=catalog, like=like)
            case "JOBS":
                self._expect_end()
                return st.ShowJobs(source=self._source(start))
            case "SAVEPOINTS":
                self._expect_words("FOR", "JOB")
                job_id = self._string("a quoted job id")
                self._expect_end()
                return st.ShowSavepoints(source=self._source(start), job_id=job_id)
            case "FUNCTIONS" | "USER":
                if word == "USER":
                    self._expect_words("FUNCTIONS")
                like = self._like_filter()
                self._expect_end(("LIKE",))
                return st.ShowFunctions(source=self._source(start), is_user_only=word == "USER", like=like)
            case "CURRENT" | "CREATE" | "COLUMNS":
                return self._show_object(word, start)
            case "MODULES" | "FULL" | "JARS" | "PARTITIONS" | "PROCEDURES" | "MODELS" | "MATERIALIZED":
                raise self._refuse(f"SHOW {word}", self._token_span(self._prev))
            case _:
                self._retreat(self._index - 1)
                raise self._unexpected("what to show", _SHOW_WORDS)

    def _show_object(self, word: str, start: Token) -> st.Statement:
        if word == "CURRENT":
            if self._take_words("CATALOG"):
                self._expect_end()
                return st.ShowCurrentCatalog(source=self._source(start))
            if self._take_words("DATABASE"):
                self._expect_end()
                return st.ShowCurrentDatabase(source=self._source(start))
            raise self._unexpected("CATALOG or DATABASE", ("CATALOG", "DATABASE"))
        if word == "CREATE":
            is_view = self._is_word("VIEW")
            if not self._is_word("TABLE", "VIEW"):
                if self._is_word("CATALOG", "MATERIALIZED", "MODEL", "DATABASE"):
                    raise self._refuse(f"SHOW CREATE {self._curr.text.upper()}")
                raise self._unexpected("TABLE or VIEW", ("TABLE", "VIEW"))
            self._advance()
            name = self._name("a view" if is_view else "a table")
            self._expect_end()
            return st.ShowCreateTable(source=self._source(start), name=name, is_view=is_view)
        if not self._is_word("FROM", "IN"):
            raise self._unexpected("FROM", ("FROM", "IN"))
        self._advance()
        name = self._name("a table")
        like = self._like_filter()
        self._expect_end(("LIKE",))
        return st.ShowColumns(source=self._source(start), name=name, like=like)

    def _describe(self, start: Token) -> st.Describe | st.DescribeJob:
        self._advance()
        if self._is_word("JOB") and self._next.token_type is TokenType.STRING:
            self._advance()
            job_id = self._string("a quoted job id")
            self._expect_end()
            return st.DescribeJob(source=self._source(start), job_id=job_id)
        if self._is_word("CATALOG", "DATABASE", "FUNCTION", "MODEL") and self._next:
            raise self._refuse(f"DESCRIBE {self._curr.text.upper()}")
        self._take_words("EXTENDED")
        name = self._name("a table")
        self._expect_end()
        return st.Describe(source=self._source(start), name=name)

    # -- session and jobs ---------------------------------------------------------------------------

    def _use(self, start: Token) -> st.UseCatalog | st.UseDatabase:
        self._expect_words("USE")
        if self._is_word("MODULES"):
            raise self._refuse("USE MODULES")
        if self._is_word("CATALOG") and self._next:
            self._advance()
            catalog = self._name("a catalog")
            self._expect_end()
            return st.UseCatalog(source=self._source(start), catalog=catalog)
        database = self._name("a database")
        self._expect_end()
        return st.UseDatabase(source=self._source(start), database=database)

    def _setting(self, word: str, start: Token) -> st.Set | st.Reset:
        self._advance()
        key = value = None
        if self._curr:
            key = self._string("a quoted key, as in SET 'parallelism.default' = '4'")
            if word == "SET":
                self._expect(TokenType.EQ, "=")
                value = self._string("a quoted value")
        self._expect_end()
        if word == "SET":
            return st.Set(source=self._source(start), key=key, value=value)
        return st.Reset(source=self._source(start), key=key)

    def _alter(self, start: Token) -> st.AlterJob:
        self._expect_words("ALTER")
        if self._is_word("TABLE", "VIEW", "DATABASE", "FUNCTION", "CATALOG", "MODEL", "MATERIALIZED"):
            raise self._refuse(f"ALTER {self._curr.text.upper()}")
        self._expect_words("JOB")
        job_id = self._string("a quoted job id")
        if not self._is_word("SET", "RESET"):
            raise self._unexpected("SET or RESET", ("SET", "RESET"))
        is_reset = self._is_word("RESET")
        self._advance()
        options = self._key_list() if is_reset else self._option_list()
        self._expect_end()
        return st.AlterJob(source=self._source(start), job_id=job_id, options=options, is_reset=is_reset)

    def _key_list(self) -> tuple[st.OptionItem, ...]:
        self._expect(TokenType.L_PAREN, "(")
        keys = self._list_of(self._key)
        self._expect(TokenType.R_PAREN, ")")
        return tuple(keys)

    def _key(self) -> st.OptionItem:
        start = self._curr
        key = self._string("a quoted key, as in RESET ('parallelism')")
        return st.OptionItem(key, "", self._span_from(start))

    def _stop(self, start: Token) -> st.StopJob:
        self._expect_words("STOP", "JOB")
        job_id = self._string("a quoted job id")
        with_savepoint = with_drain = False
        while self._take_words("WITH"):
            if self._take_words("SAVEPOINT"):
                with_savepoint = True
            elif self._take_words("DRAIN"):
                with_drain = True
            else:
                raise self._unexpected("SAVEPOINT or DRAIN", ("SAVEPOINT", "DRAIN"))
        self._expect_end(("WITH",))
        return st.StopJob(
            source=self._source(start),
            job_id=job_id,
            with_savepoint=with_savepoint,
            with_drain=with_drain,
        )
