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
    """Typed options. `iso_timestamps`: the standard is ISO-8601 rather than SQL. `prefix` is what option names begin
    with in the WITH clause: that of `json`, or of a format around JSON.

    `map-null-key.mode` and `map-null-key.literal` are checked but need no place here: an Arrow map cannot hold a NULL
    key, so building such a MAP is refused before it could be encoded.
    """

    fail_on_missing_field: bool = False
    ignore_parse_errors: bool = False
    iso_timestamps: bool = False
    decimal_as_plain_number: bool = False
    ignore_null_fields: bool = False
    prefix: str = "json."


def parse_options(options: Mapping[str, str]) -> JsonOptions:
    """Options without the `json.` prefix, typed. Raises OptionError naming the option with its prefix."""
    reader = OptionReader("json", options, OPTION_NAMES)
    parsed = msgspec.structs.replace(
        reader.json_options(), fail_on_missing_field=reader.boolean("fail-on-missing-field")
    )
    if parsed.fail_on_missing_field and parsed.ignore_parse_errors:
        raise OptionError(
            "json.fail-on-missing-field and json.ignore-parse-errors should not both be true",
            option="json.fail-on-missing-field",
        )
    return parsed


class OptionReader:
    """The options of a format that writes JSON, without the format's prefix; errors name them with it."""

    def __init__(self, format_name: str, options: Mapping[str, str], known: frozenset[str]) -> None:
        self._prefix = format_name + "."
        self._options = options
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                option = self._prefix + name
                hint = f"Did you mean '{self._prefix}{near[0]}'?" if near else ""
                raise OptionError(f"the {format_name} format has no option '{option}'", option=option, hint=hint)

    def json_options(self) -> JsonOptions:
        """What every such format has. Raises OptionError."""
        self.choice("map-null-key.mode", MAP_NULL_KEY_MODES)
        return JsonOptions(
            ignore_parse_errors=self.boolean("ignore-parse-errors"),
            iso_timestamps=self.choice("timestamp-format.standard", TIMESTAMP_STANDARDS) == "ISO-8601",
            decimal_as_plain_number=self.boolean("encode.decimal-as-plain-number"),
            ignore_null_fields=self.boolean("encode.ignore-null-fields"),
            prefix=self._prefix,
        )

    def boolean(self, name: str) -> bool:
        text = self._options.get(name, "false").strip().lower()
        if text not in ("true", "false"):
            option = self._prefix + name
            raise OptionError(f"{option} must be true or false, not '{self._options[name]}'", option=option)
        return text == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        text = self._options.get(name, choices[0]).strip().upper()
        if text not in choices:
            option = self._prefix + name
            raise OptionError(
                f"{option} must be one of {', '.join(choices)}, not '{self._options[name]}'", option=option
            )
        return text
