"""Which Java regular expressions mean the same to RE2, Arrow's engine (decided on the literal pattern).

The subset is narrow on purpose: literal ASCII text, `.`, simple classes, `\\d \\w \\s`, greedy and lazy quantifiers on
single items, plain groups that always take part, `^` at the start. Everything else runs on Python's backtracking
engine: alternation (RE2 gives '' for a group that took no part, Java NULL), case-insensitivity (RE2 folds Unicode),
look-around, back-references, possessive quantifiers, `$` and `\\b` (defined otherwise), properties.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"(?P<escape>\\[dDwWsS])"
    r"|(?P<literal>\\[.\\/\-+*?()\[\]{}^$|]|[A-Za-z0-9 _,:;/@=&%#<>!\"'`~-])"
    r"|(?P<any>\.)"
    r"|(?P<class>\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_ .,:;/@=%#])+\])"
    r"|(?P<open>\((?!\?))"
    r"|(?P<close>\))"
    r"|(?P<quantifier>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)"
)
_DOT = "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]"
_CLASSES = {"\\s": "[ \\t\\n\\x0b\\f\\r]", "\\S": "[^ \\t\\n\\x0b\\f\\r]"}


def to_re2(pattern: str, group: int = 0) -> str | None:
    """The pattern for RE2 with the wanted group named `g` (0 = all), None if it is outside the subset."""
    out: list[str] = []
    position = opened = depth = 0
    previous = ""
    if pattern.startswith("^"):
        out.append("^")
        position = 1
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            return None
        kind, text = str(token.lastgroup), token.group()
        if kind == "quantifier":
            # Not on a group (it could take no part), nor on a quantifier (possessive in Java, an error in RE2).
            if previous not in ("escape", "literal", "any", "class"):
                return None
        elif kind == "open":
            opened, depth = opened + 1, depth + 1
            text = "(?P<g>" if opened == group else "(?:"
        elif kind == "close":
            depth -= 1
        out.append(_DOT if kind == "any" else _CLASSES.get(text, text))
        if depth < 0:
            return None
        previous, position = kind, token.end()
    if depth or opened < group:
        return None
    body = "".join(out)
    return body if group else f"(?P<g>{body})"
