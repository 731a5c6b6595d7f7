"""The options of the `json` format; names and defaults are Flink's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from connectors.errors import OptionError

OPTION_NAMES = frozenset(
    {
        "fail-on-missing-field",
        "ignore-parse-errors",
        "timestamp-format.standard",
        "map-null-key.mode",
        "map-null-key.literal",
        "encode.decimal-as-plain-number",
        "encode.ignore-null-fields",
    }
)

TIMESTAMP_STANDARDS = ("SQL", "ISO-8601")
MAP_NULL_KEY_MODES = ("FAIL", "DROP", "LITERAL")


class JsonOptions(msgspec.Struct, frozen=True):
    """Typed options. `iso_timestamps`: the standard is ISO-8601 rather than SQL.

    `map-null-key.mode` and `map-null-key.literal` are checked but need no place here: an Arrow map cannot hold a NULL
    key, so building such a MAP is refused before it could be encoded.
    """

    fail_on_missing_field: bool = False
    ignore_parse_errors: bool = False
    iso_timestamps: bool = False
    decimal_as_plain_number: bool = False
    ignore_null_fields: bool = False


def parse_options(options: Mapping[str, str]) -> JsonOptions:
    """Options without the `json.` prefix, typed. Raises OptionError naming the option with its prefix."""
    for name in options:
        if name not in OPTION_NAMES:
            near = difflib.get_close_matches(name, OPTION_NAMES, n=1)
            hint = f"Did you mean 'json.{near[0]}'?" if near else ""
            raise OptionError(f"the json format has no option 'json.{name}'", option=f"json.{name}", hint=hint)
    _choice(options, "map-null-key.mode", MAP_NULL_KEY_MODES)
    parsed = JsonOptions(
        fail_on_missing_field=_boolean(options, "fail-on-missing-field"),
        ignore_parse_errors=_boolean(options, "ignore-parse-errors"),
        iso_timestamps=_choice(options, "timestamp-format.standard", TIMESTAMP_STANDARDS) == "ISO-8601",
        decimal_as_plain_number=_boolean(options, "encode.decimal-as-plain-number"),
        ignore_null_fields=_boolean(options, "encode.ignore-null-fields"),
    )
    if parsed.fail_on_missing_field and parsed.ignore_parse_errors:
        raise OptionError(
            "json.fail-on-missing-field and json.ignore-parse-errors should not both be true",
            option="json.fail-on-missing-field",
        )
    return parsed


def _boolean(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"json.{name} must be true or false, not '{options[name]}'", option=f"json.{name}")
    return text == "true"


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = options.get(name, choices[0]).strip().upper()
    if text not in choices:
        raise OptionError(
            f"json.{name} must be one of {', '.join(choices)}, not '{options[name]}'", option=f"json.{name}"
        )
    return text
