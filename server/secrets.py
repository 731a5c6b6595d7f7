"""Hides secrets wherever an option or a setting is shown: SHOW CREATE, SET, sessions, job names, errors."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "******"

_SENSITIVE = re.compile(
    r"password|passphrase|secret|token|credential|api-?key|service-key|account\.key|auth-params|basic-auth|bearer-auth"
    r"|jaas\.config|http-headers|key\.pem|private\.?-?key",
    re.IGNORECASE,
)
_PAIR = re.compile(r"('(?:[^']|'')*')(\s*=\s*)'(?:[^']|'')*'")


def is_sensitive(key: str) -> bool:
    """By its name, the value of this option or setting is a secret."""
    return _SENSITIVE.search(key) is not None


def masked(options: Mapping[str, str]) -> dict[str, str]:
    """The same options with the values of secrets replaced."""
    return {k: MASK if is_sensitive(k) else v for k, v in options.items()}


def masked_sql(sql: str) -> str:
    """SQL text with the values of secret `'key' = 'value'` pairs replaced."""

    def replace(match: re.Match[str]) -> str:
        key, equals = match.group(1), match.group(2)
        return f"{key}{equals}'{MASK}'" if is_sensitive(key) else match.group(0)

    return _PAIR.sub(replace, sql)


def without_values(message: str, options: Mapping[str, str]) -> str:
    """An error message in which no secret value of `options` appears."""
    for key, value in options.items():
        if is_sensitive(key) and value:
            message = message.replace(value, MASK)
    return message
