"""The grammar of data types."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from planner.sql.cursor import TokenCursor
from planner.sql.nodes import TypeNode

# Canonical name, and how many numbers may follow in parentheses.
_SCALAR_TYPES: dict[str, tuple[str, int]] = {
    "BOOLEAN": ("BOOLEAN", 0),
    "TINYINT": ("TINYINT", 0),
    "SMALLINT": ("SMALLINT", 0),
    "INT": ("INT", 0),
    "INTEGER": ("INT", 0),
    "BIGINT": ("BIGINT", 0),
    "FLOAT": ("FLOAT", 0),
    "DOUBLE": ("DOUBLE", 0),
    "DECIMAL": ("DECIMAL", 2),
    "DEC": ("DECIMAL", 2),
    "NUMERIC": ("DECIMAL", 2),
    "CHAR": ("CHAR", 1),
    "CHARACTER": ("CHAR", 1),
    "VARCHAR": ("VARCHAR", 1),
    "STRING": ("STRING", 0),
    "BINARY": ("BINARY", 1),
    "VARBINARY": ("VARBINARY", 1),
    "BYTES": ("BYTES", 0),
    "DATE": ("DATE", 0),
    "TIME": ("TIME", 1),
    "TIMESTAMP": ("TIMESTAMP", 1),
    "TIMESTAMP_LTZ": ("TIMESTAMP_LTZ", 1),
    "NULL": ("NULL", 0),
}

_REFUSED_TYPES = frozenset({"RAW", "VARIANT", "TIMESTAMP_TZ", "DESCRIPTOR", "STRUCTURED"})
_TYPE_WORDS = (*_SCALAR_TYPES, "ARRAY", "MAP", "MULTISET", "ROW", "INTERVAL")


class TypeParser(TokenCursor):
    """`INT`, `DECIMAL(10, 2) NOT NULL`, `ROW<a INT, b ARRAY<STRING>>`, `TIMESTAMP(3) WITH LOCAL TIME ZONE`, …"""

    def _type(self) -> TypeNode:
        start = self._curr
        if start.token_type is not TokenType.VAR:
            raise self._unexpected("a data type")
        word = start.text.upper()
        if word in _REFUSED_TYPES:
            raise self._refuse(f"the data type {word}")
        node = self._type_without_suffixes(word, start)
        while self._is_word("ARRAY", "MULTISET"):
            # The SQL standard's postfix form, INT ARRAY.
            self._advance()
            node = self._node(TypeNode(name=self._prev.text.upper(), children=[node]), start)
            self._nullability(node, start)
        return node

    def _type_without_suffixes(self, word: str, start: Token) -> TypeNode:
        if word in ("ARRAY", "MULTISET", "MAP"):
            node = self._collection_type(word, start)
        elif word == "ROW":
            node = self._row_type(start)
        elif word == "INTERVAL":
            raise self._refuse("INTERVAL as a declared data type")
        elif word in _SCALAR_TYPES:
            node = self._scalar_type(word, start)
        else:
            raise self._unexpected("a data type", _TYPE_WORDS)
        self._nullability(node, start)
        return node

    def _nullability(self, node: TypeNode, start: Token) -> None:
        if self._take_words("NOT", "NULL"):
            node.set("nullable", False)
            self._node(node, start)
        elif not self._next_is_word("ON"):
            # NULL ON EMPTY belongs to the JSON_VALUE around a type.
            self._take_words("NULL")

    def _scalar_type(self, word: str, start: Token) -> TypeNode:
        self._advance()
        name, parameters_max = _SCALAR_TYPES[word]
        if word == "DOUBLE":
            self._take_words("PRECISION")
        if word in ("CHAR", "CHARACTER") and self._take_words("VARYING"):
            name = "VARCHAR"
        parameters: list[int] = []
        if parameters_max and self._match(TokenType.L_PAREN):
            parameters = self._list_of(lambda: self._integer("a number"))
            if len(parameters) > parameters_max:
                raise self._fail(f"{name} takes at most {parameters_max} number(s)", self._span_from(start))
            self._expect(TokenType.R_PAREN, ")")
        if name in ("TIMESTAMP", "TIME"):
            if self._take_words("WITH", "LOCAL", "TIME", "ZONE") and name == "TIMESTAMP":
                name = "TIMESTAMP_LTZ"
            elif self._is_word("WITH") and self._next_is_word("TIME"):
                raise self._refuse(f"{name} WITH TIME ZONE", hint="Use TIMESTAMP_LTZ, an instant without a zone.")
            else:
                self._take_words("WITHOUT", "TIME", "ZONE")
        return self._node(TypeNode(name=name, parameters=parameters), start)

    def _collection_type(self, word: str, start: Token) -> TypeNode:
        self._advance()
        self._expect(TokenType.LT, "<")
        children = self._list_of(self._type)
        self._close_angle()
        wanted = 2 if word == "MAP" else 1
        if len(children) != wanted:
            raise self._fail(f"{word} takes {wanted} type argument(s)", self._span_from(start))
        return self._node(TypeNode(name=word, children=children), start)

    def _row_type(self, start: Token) -> TypeNode:
        self._advance()
        fields: list[tuple[exp.Identifier, TypeNode]] = []
        if self._match(TokenType.L_PAREN):
            fields = self._list_of(self._row_field)
            self._expect(TokenType.R_PAREN, ")")
        elif self._match(TokenType.NEQ):
            pass  # `ROW<>` reads as the operator <>; a row without fields.
        else:
            self._expect(TokenType.LT, "<")
            fields = self._list_of(self._row_field)
            self._close_angle()
        return self._node(
            TypeNode(name="ROW", field_names=[f[0] for f in fields], children=[f[1] for f in fields]), start
        )

    def _row_field(self) -> tuple[exp.Identifier, TypeNode]:
        name = self._identifier("a field name")
        field_type = self._type()
        if self._curr.token_type is TokenType.STRING:
            self._advance()  # A field's comment has no meaning for planning.
        return name, field_type

    def _close_angle(self) -> None:
        if self._curr.token_type is TokenType.GTE:
            raise self._unexpected("'>'")
        self._expect(TokenType.GT, ">")
