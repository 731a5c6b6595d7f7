"""Flink's lexical rules as a sqlglot dialect, and the words that cannot stand as a name without backticks.

Keywords are not token types here: every bare word is a VAR token and the grammar matches its text. So nothing
depends on which of sqlglot's keyword tables an upgrade extends, and a word that is no keyword of ours stays a
name.
"""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot import tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from planner.errors import Span, SqlError, SqlState

if tokens.SQLGLOTC_INSTALLED:
    # The compiled build cannot be sub-classed in Python: half of the grammar would silently not apply.
    raise ImportError("headrace needs sqlglot in pure Python: uninstall sqlglotc")


class FlinkDialect(Dialect):
    """Backticks quote identifiers, single quotes quote strings, comments do not nest."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
        IDENTIFIER_ESCAPES: ClassVar[list[str]] = ["`"]
        QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("X'", "'"), ("x'", "'")]
        UNICODE_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("U&'", "'"), ("u&'", "'")]
        COMMENTS: ClassVar[list[str | tuple[str, str]]] = ["--", ("/*", "*/")]
        NESTED_COMMENTS = False
        COMMANDS: ClassVar[set[TokenType]] = set()
        VAR_SINGLE_TOKENS: ClassVar[set[str]] = {"$"}
        TOKENS_PRECEDING_HINT: ClassVar[set[TokenType]] = {
            TokenType.VAR,
            TokenType.IDENTIFIER,
            TokenType.R_PAREN,
        }
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            "/*+": TokenType.HINT,
            "||": TokenType.DPIPE,
            ">=": TokenType.GTE,
            "<=": TokenType.LTE,
            "<>": TokenType.NEQ,
            "!=": TokenType.NEQ,
            "=>": TokenType.FARROW,
        }


RESERVED = frozenset(
    """
    ALL ALTER AND ANY ARRAY AS ASOF BETWEEN BY CASE CAST CREATE CROSS CUBE DELETE DESCRIBE DISTINCT DROP ELSE END
    ESCAPE EXCEPT EXISTS EXPLAIN FALSE FETCH FOR FROM FULL GROUP GROUPING HAVING IN INNER INSERT INTERSECT INTERVAL
    INTO IS JOIN LATERAL LEFT LIKE LIMIT MATCH_RECOGNIZE MERGE MINUS MULTISET NATURAL NOT NULL OFFSET ON OR ORDER
    OUTER OVER PARTITION PIVOT QUALIFY RIGHT ROLLUP ROW SELECT SET SIMILAR SOME TABLE TABLESAMPLE THEN TO TRUE
    UNION UNKNOWN UNNEST UPDATE USING VALUES WHEN WHERE WINDOW WITH WITHIN
    """.split()
)
"""Words that need backticks as a name. A subset of Flink's list: the rest of it is accepted bare."""


def tokenize(text: str, offset: int, script: str) -> list[Token]:
    """Tokens of a statement that starts at `offset` of `script`."""
    try:
        return FlinkDialect().tokenize(text)
    except TokenError as e:
        # The splitter has told open strings and comments apart before; what is left is rare and names itself.
        raise _unreadable(str(e.__cause__ or e), offset, script) from None


_PLACED = re.compile(r"(?P<reason>.*) from (?P<line>\d+):(?P<start>\d+)", re.DOTALL)


def _unreadable(message: str, offset: int, script: str) -> SqlError:
    """The tokenizer's complaint at its place: the number behind the line is the token's offset in the text."""
    placed = _PLACED.fullmatch(message)
    reason, start = "the text cannot be read", offset
    if placed is not None:
        start += int(placed["start"])
        reason = placed["reason"][:1].lower() + placed["reason"][1:]
    hint = "X'…' holds pairs of hexadecimal digits." if "numeric string" in reason else ""
    return SqlError(SqlState.SYNTAX_ERROR, reason, span=Span(start, start + 1), hint=hint, text=script)
