"""The token cursor under the grammar: sqlglot's parser with spans, exact errors and a bound on nesting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from planner.errors import Span, SqlError, SqlState, nearest_name, not_supported
from planner.sql.dialect import RESERVED, FlinkDialect, tokenize
from planner.sql.nodes import NodeT, stamp
from planner.sql.splitter import StatementText
from planner.sql.statements import Name, OptionItem

NESTING_DEPTH_MAX = 128
"""Brackets and CASEs inside each other; real queries stay below 30, generated ones below 100."""

_INTEGER_DIGITS_MAX = 18
"""Counts, lengths and precisions fit 64 bits."""

T = TypeVar("T")

_CLAUSE_WORDS = frozenset(
    "SELECT FROM WHERE GROUP HAVING UNION LIMIT ON AS AND OR NOT THEN ELSE WHEN VALUES WITH IS IN".split()
)
"""Reserved words that stand where a name was forgotten rather than as a name."""

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})


class TokenCursor(Parser):
    """Primitives for reading one statement's tokens.

    The grammar is written out above these primitives and uses none of sqlglot's own productions: those accept
    much that is not Flink SQL, and drop what they do not understand.
    """

    def __init__(self, statement: StatementText, script: str) -> None:
        super().__init__(dialect=FlinkDialect())
        self.script = script
        self.offset = statement.span.start
        self.end_offset = statement.span.end
        self._tokens = tokenize(statement.text, self.offset, script)
        self._tokens_size = len(self._tokens)
        self._check_nesting()
        self._index = -1
        self._advance()

    def _check_nesting(self) -> None:
        depth = 0
        for token in self._tokens:
            word = token.text.upper() if token.token_type is TokenType.VAR else ""
            if token.token_type in _OPENING or word == "CASE":
                depth += 1
                if depth > NESTING_DEPTH_MAX:
                    message = f"nested deeper than {NESTING_DEPTH_MAX} levels"
                    hint = "Give a part of it a name: a query in WITH, or a view."
                    raise too_complex(message, self._token_span(token), hint, self.script)
            elif token.token_type in _CLOSING or word == "END":
                depth -= 1

    # -- places -------------------------------------------------------------------------------------

    def _token_span(self, token: Token) -> Span:
        return Span(token.start + self.offset, token.end + 1 + self.offset)

    def _here(self) -> Span:
        """The current token, or the place behind the last one."""
        if self._curr:
            return self._token_span(self._curr)
        return Span(self.end_offset, self.end_offset)

    def _span_from(self, start: Token) -> Span:
        """From `start` to the last token read."""
        return Span(start.start + self.offset, self._prev.end + 1 + self.offset)

    def _text_of(self, span: Span) -> str:
        return self.script[span.start : span.end]

    def _node(self, node: NodeT, start: Token) -> NodeT:
        """Stamps `node` with the span from `start` to the last token read."""
        return stamp(node, start.start + self.offset, self._prev.end + 1 + self.offset)

    # -- errors -------------------------------------------------------------------------------------

    def _fail(self, message: str, span: Span | None = None, hint: str = "") -> SqlError:
        return SqlError(SqlState.SYNTAX_ERROR, message, span=span or self._here(), hint=hint, text=self.script)

    def _refuse(self, feature: str, span: Span | None = None, hint: str = "") -> SqlError:
        return not_supported(feature, span or self._here(), hint).located(self.script)

    def _unexpected(self, expected: str, keywords: tuple[str, ...] = ()) -> SqlError:
        """The current token cannot stand here; `keywords` are words it may be a misspelling of."""
        if not self._curr:
            return self._fail(f"the statement ends where {expected} should follow")
        token = self._curr
        if token.token_type is TokenType.UNKNOWN and token.text == '"':
            return self._fail('unexpected "', hint="Names are quoted with backticks: `name`; strings with 'quotes'.")
        near = nearest_name(token.text, keywords) if token.token_type is TokenType.VAR else None
        hint = f"Did you mean {near}?" if near else ""
        if not near and self._prev and self._prev.token_type is TokenType.VAR:
            # A misspelt keyword before has passed as an alias: SELECT k FORM t.
            word = self._prev.text
            meant = nearest_name(word, keywords) if word.upper() not in RESERVED else None
            hint = f"{word} was read as a name. Did you mean {meant}?" if meant else ""
        return self._fail(f"unexpected {self._text_of(self._token_span(token))!r}, expected {expected}", hint=hint)

    # -- matching -----------------------------------------------------------------------------------

    def _is_word(self, *words: str) -> bool:
        """Whether the current token is one of these bare words."""
        return self._curr.token_type is TokenType.VAR and self._curr.text.upper() in words

    def _next_is_word(self, *words: str) -> bool:
        return self._next.token_type is TokenType.VAR and self._next.text.upper() in words

    def _take_words(self, *words: str) -> bool:
        """Consumes the whole sequence of bare words, or nothing."""
        index = self._index
        for word in words:
            if not self._is_word(word):
                self._retreat(index)
                return False
            self._advance()
        return True

    def _expect_words(self, *words: str) -> None:
        for word in words:
            if not self._take_words(word):
                raise self._unexpected(word, (word,))

    def _expect(self, token_type: TokenType, text: str) -> None:
        if not self._match(token_type):
            raise self._unexpected(f"'{text}'")

    def _expect_end(self, keywords: tuple[str, ...] = ()) -> None:
        if self._curr:
            raise self._unexpected("the end of the statement", keywords)

    def _list_of(self, item: Callable[[], T]) -> list[T]:
        """`item, item, …`: at least one."""
        items = [item()]
        while self._match(TokenType.COMMA):
            items.append(item())
        return items

    def _in_parentheses(self, content: Callable[[], T]) -> T:
        self._expect(TokenType.L_PAREN, "(")
        result = content()
        self._expect(TokenType.R_PAREN, ")")
        return result

    # -- names and literals -------------------------------------------------------------------------

    def _at_name(self) -> bool:
        token = self._curr
        if token.token_type is TokenType.IDENTIFIER:
            return True
        return token.token_type is TokenType.VAR and token.text.upper() not in RESERVED

    def _identifier(self, what: str) -> exp.Identifier:
        token = self._curr
        if not self._at_name():
            if token.token_type is TokenType.VAR:
                hint = f"{token.text} is a reserved word: quote it as `{token.text}` to use it as a name."
                is_clause = token.text.upper() in _CLAUSE_WORDS
                raise self._fail(f"unexpected {token.text!r}, expected {what}", hint="" if is_clause else hint)
            raise self._unexpected(what)
        self._advance()
        if not token.text:
            raise self._fail("an empty name", self._token_span(token))
        return self._node(exp.Identifier(this=token.text), token)

    def _name(self, what: str) -> Name:
        """A dotted path of up to three parts."""
        start = self._curr
        parts = [self._identifier(what).this]
        while self._match(TokenType.DOT):
            parts.append(self._identifier(what).this)
        span = self._span_from(start)
        if len(parts) > 3:
            raise self._fail(f"{what} has at most three parts: catalog.database.name", span)
        return Name(tuple(parts), span)

    def _string(self, what: str) -> str:
        """A plain string literal's value."""
        if self._curr.token_type is not TokenType.STRING:
            raise self._unexpected(what)
        self._advance()
        return self._prev.text

    def _integer(self, what: str) -> int:
        if self._curr.token_type is not TokenType.NUMBER or not self._curr.text.isdigit():
            raise self._unexpected(what)
        text = self._curr.text.lstrip("0") or "0"
        if len(text) > _INTEGER_DIGITS_MAX:
            message = f"a number of {len(text)} digits, expected {what} of at most {_INTEGER_DIGITS_MAX}"
            span = self._token_span(self._curr)
            raise SqlError(SqlState.NUMERIC_OUT_OF_RANGE, message, span=span, text=self.script)
        self._advance()
        return int(text)

    def _option_list(self) -> tuple[OptionItem, ...]:
        """`('key' = 'value', …)`; a key may be given once."""
        self._expect(TokenType.L_PAREN, "(")
        items: list[OptionItem] = []
        if self._curr.token_type is not TokenType.R_PAREN:
            items = self._list_of(self._option)
        self._expect(TokenType.R_PAREN, ")")
        seen: set[str] = set()
        for item in items:
            if item.key in seen:
                raise self._fail(f"the option '{item.key}' is given twice", item.span)
            seen.add(item.key)
        return tuple(items)

    def _option(self) -> OptionItem:
        start = self._curr
        key = self._string("a quoted option, as in 'connector' = 'kafka'")
        self._expect(TokenType.EQ, "=")
        value = self._string("a quoted value")
        return OptionItem(key, value, self._span_from(start))


def too_complex(message: str, span: Span, hint: str, script: str) -> SqlError:
    """A bound of the grammar was passed at `span`."""
    return SqlError(SqlState.TOO_COMPLEX, message, span=span, hint=hint, text=script)
