"""Regular expressions, LIKE, JSON paths and date patterns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.operators.expressions.java_regex import UnsupportedPattern, compile_java
from runtime.operators.expressions.json_value import find, parse_path
from runtime.operators.expressions.like import matches
from runtime.operators.expressions.re2_subset import to_re2
from runtime.operators.expressions.regex import extract, replace_all
from runtime.operators.expressions.time_patterns import (
    BadPattern,
    moment_of,
    parse_pattern,
    read_text,
    read_time,
    write,
)

IN_SUBSET = [
    "a+",
    "(a+)(b*)",
    "[a-c]+x?",
    "a.b",
    r"\d+-\d+",
    "^ab",
    r"(\w+?)\s",
    "[^ab]",
    "a{1,2}b",
    r"\$\.",
    "x",
    r"\s+",
]
OUTSIDE = [
    "a|b",
    "(a)?b",
    "(?i)a",
    "(?=a)",
    r"(a)\1",
    "a++",
    "a$",
    r"\bx",
    r"\p{L}",
    "[a&&b]",
    "ü",
    "a{2}{3}",
    "(",
    "[",
    "(?:a)",
]
TEXTS = st.text(alphabet="abcxüé😀 1-\n\r.$\u0085\v", max_size=12)


@pytest.mark.parametrize("pattern", OUTSIDE)
def test_what_engines_read_differently_stays_off_re2(pattern: str) -> None:
    assert to_re2(pattern) is None


@given(pattern=st.sampled_from(IN_SUBSET), group=st.integers(0, 2), text=TEXTS)
def test_re2_extracts_what_the_java_engine_does(pattern: str, group: int, text: str) -> None:
    expression = to_re2(pattern, group)
    if group > pattern.count("("):
        assert expression is None
        return
    assert expression is not None
    found = pc.struct_field(pc.extract_regex(pa.array([text]), expression), "g")[0].as_py()
    assert found == extract(text, pattern, group)


@given(pattern=st.sampled_from(IN_SUBSET), text=TEXTS)
def test_re2_replaces_what_the_java_engine_does(pattern: str, text: str) -> None:
    expression = to_re2(pattern)
    assert expression is not None
    if compile_java(pattern).match("") is None:
        assert pc.replace_substring_regex(pa.array([text]), expression, "<>")[0].as_py() == replace_all(
            text, pattern, "<>"
        )


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\p{Lu}\p{Ll}+", "xx Ärger", "Ärger"),
        (r"[\p{L}_]+", "1 äb_c 2", "äb_c"),
        (r"\Qa.b\E+", "a.bbb", "a.bbb"),
        ("(?<year>\\d+)-\\k<year>", "7-7", "7-7"),
        ("a.c", "a\u2028c", None),
        ("(?s)a.c", "a\nc", "a\nc"),
        ("(?m)^b$", "a\nb\nc", "b"),
        ("ab$", "ab\r\n", "ab"),
        (r"ab\z", "ab\n", None),
        (r"x\h+y", "x\u00a0\ty", "x\u00a0\ty"),
        (r"\x{1F600}", "😀", "😀"),
        ("[]a]+", "a]", "a]"),
        (r"a\Rb", "a\r\nb", "a\r\nb"),
        (r"\P{L}+", "ab12", "12"),
        ("a*+a", "aaa", None),
        ("(?>a+)b", "aab", "aab"),
    ],
)  # fmt: skip
def test_java_constructs(pattern: str, text: str, found: str | None) -> None:
    assert extract(text, pattern) == found


@pytest.mark.parametrize("pattern", ["[a&&[b]]", r"\G", r"\p{Foo}", "a(?i)b", r"\cA"])
def test_java_constructs_without_a_counterpart_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        compile_java(pattern)


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "*a"])
def test_malformed_patterns_give_null(pattern: str) -> None:
    assert extract("aaa", pattern) is None
    assert replace_all("aaa", pattern, "x") is None


def test_like_is_not_a_regular_expression() -> None:
    assert matches("a.b*c", "a.b*c")
    assert not matches("axb", "a.b")
    assert matches("a\nb", "a%b")
    assert not matches("a\nb", "a_b")
    assert matches("50%", "50!%", "!")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a.b", (False, ("a", "b"))),
        ("lax $['x y'][0]", (True, ("x y", 0))),
        (" STRICT  $", (False, ())),
        ('$["q"]', (False, ("q",))),
        ("$.", (False, None)),
        ("$[", (False, None)),
        ("", (False, None)),
    ],
)
def test_json_paths(path: str, expected: tuple[bool, tuple[object, ...] | None]) -> None:
    assert parse_path(path) == expected


def test_json_values_keep_their_digits() -> None:
    assert find('{"a": 1.50}', "$.a")[1].as_tuple().exponent == -2
    assert find('{"a": [1, {"b": "x"}]}', "$.a[1].b") == (None, "x")
    assert find('{"a": NaN}', "$.a")[0] == "error"
    assert find("[[1]]", "lax $[0]") == ("empty", None)


def test_date_patterns_are_written_and_read() -> None:
    noon = read_time("5 Mar 2021 12:30:00.25 PM", "d MMM yyyy hh:mm:ss.SS a")
    assert noon is not None
    items = parse_pattern("yyyy-MM-dd'T'HH:mm:ss.SSS EEEE", legacy=False)
    assert write(items, moment_of(noon), legacy=False) == "2021-03-05T12:30:00.250 Friday"
    assert read_time("2021-13-01", "yyyy-MM-dd") is None
    assert read_text("2021-13-01 and more", "yyyy-MM-dd") == 1_640_995_200_000
    with pytest.raises(BadPattern):
        parse_pattern("yyyy 'open", legacy=False)
