"""The user's documentation names everything there is, its links lead somewhere and its SQL parses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from connectors.api import TableDefinition
from connectors.datagen.connector import OPTION_NAMES as DATAGEN_OPTIONS
from connectors.datagen.fields import FieldPlan
from connectors.filesystem.options import OPTION_NAMES as FILE_OPTIONS
from connectors.filesystem.source import METADATA as FILE_METADATA
from connectors.formats.csv.options import OPTION_NAMES as CSV_OPTIONS
from connectors.formats.json.options import OPTION_NAMES as JSON_OPTIONS
from connectors.formats.raw.format import FORMAT as RAW
from connectors.kafka import options as kafka
from connectors.kafka.connector import READABLE_METADATA
from connectors.nexmark.connector import OPTION_NAMES as NEXMARK_OPTIONS
from connectors.options import SINK_OPTIONS, SOURCE_OPTIONS, Options
from planner import api
from planner.ir import types as t
from server.config import known_keys
from server.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def _missing(names: Iterable[str], page: str) -> list[str]:
    """Names that no `code` outside of fenced blocks is equal to."""
    spans = set(_CODE.findall(_FENCE.sub("", _page(page))))
    return sorted(set(names) - spans)


def _datagen_field_options() -> set[str]:
    """`fields.<name>.…` of every kind of column, random and sequence."""
    columns = (
        t.Field("a", t.BIGINT),
        t.Field("b", t.STRING),
        t.Field("c", t.timestamp(3)),
        t.Field("d", t.BIGINT),
    )
    given = {"connector": "datagen", "fields.d.kind": "sequence", "fields.d.start": "1", "fields.d.end": "2"}
    plan = FieldPlan(columns, Options(TableDefinition("t", given, columns)))
    return {re.sub(r"^fields\.\w+\.", "fields.<name>.", name) for name in plan.option_names}


def test_every_connector_option_is_documented() -> None:
    options = kafka._COMMON | kafka._SOURCE | kafka._SINK | set(kafka._REFUSED)
    options |= SOURCE_OPTIONS | SINK_OPTIONS | NEXMARK_OPTIONS | DATAGEN_OPTIONS | _datagen_field_options()
    options |= {"path", "format", "source.monitor-interval", "print-identifier", "standard-error"}
    options |= FILE_OPTIONS | {f"csv.{name}" for name in CSV_OPTIONS}
    options |= {f"json.{name}" for name in JSON_OPTIONS} | {f"raw.{name}" for name in RAW.option_names}
    assert _missing(options, "connectors.md") == []


def test_every_choice_of_a_kafka_option_is_documented() -> None:
    kinds = (kafka.StartupMode, kafka.BoundedMode, kafka.DeliveryGuarantee, kafka.PartitionerKind)
    assert _missing((choice.value for kind in kinds for choice in kind), "connectors.md") == []


def test_every_metadata_column_is_documented() -> None:
    assert _missing([*READABLE_METADATA, *FILE_METADATA], "connectors.md") == []


def test_every_job_setting_with_effect_is_documented() -> None:
    assert _missing(SETTINGS, "operations.md") == []


def test_every_variable_named_is_one() -> None:
    known = {"HEADRACE_" + key.replace(".", "_").replace("-", "_").upper() for key in known_keys()}
    named = set(re.findall(r"HEADRACE_[A-Z0-9_]*[A-Z0-9]", "".join(page.read_text(encoding="utf-8") for page in PAGES)))
    assert named - known == {"HEADRACE_CONFIG", "HEADRACE_KAFKA_CLIENT", "HEADRACE_URL"}


def test_every_function_is_documented() -> None:
    words = set(re.findall(r"\w+", _page("sql.md").partition("## Functions")[2]))
    assert sorted(name.upper() for name in api.function_names() if name.upper() not in words) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            headings = _HEADING.findall(_FENCE.sub("", target.read_text(encoding="utf-8")))
            assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sql_parses(page: Path) -> None:
    for language, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "sql":
            assert api.parse(text), text
