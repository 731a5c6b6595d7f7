"""Java regular expressions in Python's `re`.

Python's engine backtracks like Java's, so groups, laziness, look-around, back-references and possessive quantifiers
mean the same. What is spelt or defined otherwise is translated; what has no counterpart is refused by name.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

from runtime.operators.expressions.errors import EvaluationFailure

_DOT = r"[^\n\r\u0085\u2028\u2029]"
_END = r"(?=(?:\r\n|[\n\r\u0085\u2028\u2029])?\Z)"
_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": "\\x00-\\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"), "Graph": "\\x21-\\x7e", "Print": "\\x20-\\x7e",
    "Blank": " \\t", "Cntrl": "\\x00-\\x1f\\x7f", "XDigit": "0-9a-fA-F", "Space": " \\t\\n\\x0b\\f\\r",
}  # fmt: skip
_ESCAPED_CLASSES = {"h": " \\t\\xa0\\u1680\\u180e\\u2000-\\u200a\\u202f\\u205f\\u3000",
                    "v": "\\n\\x0b\\f\\r\\x85\\u2028\\u2029"}  # fmt: skip


class UnsupportedPattern(EvaluationFailure):
    """A construct of Java's regular expressions that is not supported here."""


@lru_cache(maxsize=256)
def _category_ranges(name: str) -> str:
    """The body of a character class for a Unicode general category such as `L` or `Lu`."""
    members = [c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)).startswith(name)]
    ranges: list[str] = []
    start = previous = None
    for member in [*members, None]:
        if previous is not None and member == previous + 1:
            previous = member
            continue
        if start is not None and previous is not None:
            ranges.append(f"\\U{start:08x}" if start == previous else f"\\U{start:08x}-\\U{previous:08x}")
        start = previous = member
    return "".join(ranges)


def _property(name: str) -> str:
    name = name.removeprefix("Is").split("=")[-1]
    if name in _POSIX:
        return _POSIX[name]
    alias = {"Alphabetic": "L", "Letter": "L", "Uppercase": "Lu", "Lowercase": "Ll", "Punctuation": "P"}.get(name, name)
    if not re.fullmatch(r"[LMNPSZC][a-z]?", alias):
        raise UnsupportedPattern(f"\\p{{{name}}} is not supported in regular expressions")
    return _category_ranges(alias)


class _Translator:
    """One pass over the pattern; `_in_class` is the nesting of brackets."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._out: list[str] = []
        self._dot_all = False
        self._multiline = False

    def translate(self) -> str:
        while self._position < len(self._pattern):
            character = self._pattern[self._position]
            if character == "\\":
                self._escape(in_class=False)
            elif character == "[":
                self._class()
            elif character == "(":
                self._group()
            elif character == "." and not self._dot_all:
                self._emit(_DOT)
            elif character == "$" and not self._multiline:
                self._emit(_END)
            else:
                self._emit(character)
        return "".join(self._out)

    def _emit(self, text: str, consumed: int = 1) -> None:
        self._out.append(text)
        self._position += consumed

    def _group(self) -> None:
        rest = self._pattern[self._position :]
        if match := re.match(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>", rest):
            self._emit(f"(?P<{match.group(1)}>", match.end())
        elif match := re.match(r"\(\?([imsux]*)(-[imsux]+)?([:)])", rest):
            flags, off, close = match.groups()
            self._dot_all |= "s" in flags
            self._multiline |= "m" in flags
            if close == ")":
                if off or self._out:
                    raise UnsupportedPattern(f"the inline flags {match.group(0)} are only supported at the start")
                self._emit(f"(?{flags.replace('u', '')})" if flags.replace("u", "") else "", match.end())
            else:
                self._emit(f"(?{flags.replace('u', '')}{off or ''}:", match.end())
        else:
            self._emit("(")

    def _class(self) -> None:
        self._emit("[")
        if self._pattern[self._position : self._position + 1] == "^":
            self._emit("^")
        first = True
        while self._position < len(self._pattern):
            character = self._pattern[self._position]
            if character == "]" and not first:
                self._emit("]")
                return
            if character == "[" or self._pattern.startswith("&&", self._position):
                raise UnsupportedPattern("nested classes and && are not supported in regular expressions")
            if character == "\\":
                self._escape(in_class=True)
            else:
                self._emit("\\" + character if character in "]-~|&[" and character != "-" else character)
            first = False
        raise EvaluationFailure("unclosed character class")

    def _escape(self, *, in_class: bool) -> None:
        following = self._pattern[self._position + 1 : self._position + 2]
        rest = self._pattern[self._position :]
        if match := re.match(r"\\([pP])(?:\{(\^?)(\w+=?\w*)\}|(\w))", rest):
            kind, caret, long, short = match.groups()
            body, negated = _property(long or short), (kind == "P") != bool(caret)
            if in_class and negated:
                raise UnsupportedPattern("\\P inside a character class is not supported in regular expressions")
            self._emit(body if in_class else f"[{'^' if negated else ''}{body}]", match.end())
        elif following == "Q":
            end = self._pattern.find("\\E", self._position + 2)
            quoted = self._pattern[self._position + 2 : end if end >= 0 else None]
            self._emit(re.escape(quoted), len(quoted) + 4 if end >= 0 else len(rest))
        elif following == "Z":
            self._emit(_END, 2)
        elif following == "z":
            self._emit(r"\Z", 2)
        elif following == "R":
            self._emit(r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])", 2)
        elif following in _ESCAPED_CLASSES:
            body = _ESCAPED_CLASSES[following]
            self._emit(body if in_class else f"[{body}]", 2)
        elif match := re.match(r"\\k<(\w+)>", rest):
            self._emit(f"(?P={match.group(1)})", match.end())
        elif match := re.match(r"\\x\{([0-9a-fA-F]+)\}", rest):
            self._emit(f"\\U{int(match.group(1), 16):08x}", match.end())
        elif following == "e":
            self._emit("\\x1b", 2)
        elif following in "GXNcHVb0" and following and not (following == "b" and not in_class):
            raise UnsupportedPattern(f"\\{following} is not supported in regular expressions")
        else:
            self._emit(rest[:2], 2)


@lru_cache(maxsize=1024)
def compile_java(pattern: str) -> re.Pattern[str]:
    """The pattern compiled. Raises `re.error` or EvaluationFailure (malformed), UnsupportedPattern (not supported)."""
    return re.compile(_Translator(pattern).translate(), re.ASCII)
