"""The options of the `csv` format; names and defaults are Flink's."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from connectors.errors import OptionError

OPTION_NAMES = frozenset(
    {
        "field-delimiter",
        "disable-quote-character",
        "quote-character",
        "allow-comments",
        "ignore-parse-errors",
        "array-element-delimiter",
        "escape-character",
        "null-literal",
        "write-bigdecimal-in-scientific-notation",
    }
)
_ESCAPED = {"\\t": "\t", "\\b": "\b", "\\f": "\f", "\\\\": "\\"}


class CsvOptions(msgspec.Struct, frozen=True):
    """Typed options. `quote` and `escape` are empty when there is none; `null_literal` is None when no text means NULL
    (then NULL is written as an empty text)."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    element_delimiter: str = ";"
    null_literal: str | None = None
    allow_comments: bool = False
    ignore_parse_errors: bool = False
    scientific_decimals: bool = True


def parse_options(options: Mapping[str, str]) -> CsvOptions:
    """Options without the `csv.` prefix, typed. Raises OptionError naming the option with its prefix."""
    quotes = not _boolean(options, "disable-quote-character", False)
    if not quotes and "quote-character" in options:
        raise OptionError(
            "'csv.quote-character' has no meaning where 'csv.disable-quote-character' is true",
            option="csv.quote-character",
        )
    parsed = CsvOptions(
        delimiter=_character(options, "field-delimiter", ","),
        quote=_character(options, "quote-character", '"') if quotes else "",
        escape=_character(options, "escape-character", "") if "escape-character" in options else "",
        element_delimiter=_escaped(options.get("array-element-delimiter", ";")),
        null_literal=options.get("null-literal"),
        allow_comments=_boolean(options, "allow-comments", False),
        ignore_parse_errors=_boolean(options, "ignore-parse-errors", False),
        scientific_decimals=_boolean(options, "write-bigdecimal-in-scientific-notation", True),
    )
    if not parsed.element_delimiter:
        raise OptionError("'csv.array-element-delimiter' is empty", option="csv.array-element-delimiter")
    if parsed.delimiter in (parsed.quote, "\n", "\r"):
        raise OptionError(
            "'csv.field-delimiter' must differ from the quote character and from line ends",
            option="csv.field-delimiter",
        )
    return parsed


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"'csv.{name}' must be true or false, not '{options[name]}'", option=f"csv.{name}")
    return text == "true"


def _character(options: Mapping[str, str], name: str, default: str) -> str:
    text = _escaped(options.get(name, default))
    if len(text) != 1 or not text.isascii():
        raise OptionError(f"'csv.{name}' must be one ASCII character, not '{options[name]}'", option=f"csv.{name}")
    return text


def _escaped(text: str) -> str:
    """A control character may be written as in Java: `\\t`."""
    return _ESCAPED.get(text, text)
