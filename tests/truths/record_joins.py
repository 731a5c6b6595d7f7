"""Ask a real Apache Flink every query of `definitions_joins.py`, and write column names, types and the folded answers.

Run it as `record.py`: `python -m tests.truths.record_joins`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.truths.definitions_joins import QUERIES
from tests.truths.definitions_joins_tables import TABLES, VIEWS, Table
from tests.truths.record import Flink, _error_of
from tests.truths.record_aggregates import _streaming
from tests.truths.record_queries import left_over

_FILE = Path(__file__).parent / "joins.json"


def _write(table: Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        before: Any = None
        for kind, values in table.changes:
            row: dict[str, Any] = dict(zip(table.names, values, strict=True))
            for name in ("r", "parts"):
                if row.get(name) is not None:
                    row[name] = _fields(row[name])
            if kind == 1:
                before = row
            elif not table.changing:
                file.write(json.dumps(row) + "\n")
            else:
                after = None if kind == 3 else row
                message = {"before": before if kind == 2 else row if kind == 3 else None, "after": after}
                file.write(json.dumps({**message, "op": "c" if kind == 0 else "u" if kind == 2 else "d"}) + "\n")


def _fields(value: list[Any]) -> Any:
    """Rows of `docs` as JSON objects."""
    if value and isinstance(value[0], list):
        return [dict(zip(("sku", "n"), part, strict=True)) for part in value]
    return dict(zip(("x", "y"), value, strict=True)) if value else value


def _define(environment: Any, folder: str) -> None:
    for name, table in TABLES.items():
        path = Path(folder) / f"{name}.json"
        _write(table, path)
        form = "debezium-json" if table.changing else "json"
        environment.execute_sql(
            f"CREATE TEMPORARY TABLE `{name}` ({table.columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', "
            f"'format' = '{form}', '{form}.timestamp-format.standard' = 'ISO-8601')"
        )
    for name, query in VIEWS.items():
        environment.execute_sql(f"CREATE TEMPORARY VIEW {name} AS {query}")


def _reason(error: Exception) -> str:
    text = " ".join(_error_of(error)["error"].split())
    return text.replace("TableException: org.apache.flink.table.api.TableException: ", "TableException: ")[:120]


def _asked(environment: Any, mode: str, query: str) -> dict[str, Any]:
    """`refused`: by the planner, perhaps after the columns were known; `fails`: on the rows."""
    recorded: dict[str, Any] = {"mode": mode, "sql": query}
    try:
        table = environment._j_tenv.sqlQuery(query)
        columns = table.getResolvedSchema().getColumns()
        recorded["names"] = [str(c.getName()) for c in columns]
        recorded["types"] = [str(c.getDataType().getLogicalType().asSummaryString()) for c in columns]
        result = table.execute()
    except Exception as error:
        return {**recorded, "refused": _reason(error)}
    try:
        rows = left_over(result.collect())
    except Exception as error:
        return {**recorded, "fails": _reason(error)}
    return {**recorded, "rows": rows if mode == "ordered" else sorted(rows, key=repr)}


def _write_answers(version: str, recorded: list[dict[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in recorded)
    _FILE.write_text(f'{{"flink": {json.dumps(version)}, "queries": [\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    flink = Flink()
    streaming, batch = _streaming(flink), flink._environment
    streaming.get_config().set("pipeline.auto-watermark-interval", "1 ms")
    recorded: list[dict[str, Any]] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for environment in (streaming, batch):
                environment.get_config().set("table.local-time-zone", "UTC")
            _define(streaming, folder)
            # Batch mode reads no changes.
            for name in [name for name, table in TABLES.items() if table.changing]:
                del TABLES[name]
            VIEWS.clear()
            _define(batch, folder)
            for mode, query in QUERIES:
                recorded.append(_asked(streaming if mode == "streaming" else batch, mode, query))
                print(len(recorded), " ".join(query.split())[:80], flush=True)
    finally:
        flink.close()
    _write_answers(flink.version, recorded)


if __name__ == "__main__":
    main()
