"""Ask a real Apache Flink every query of `definitions_queries.py` in streaming mode, and write the folded answers.

Run it as `record.py`: `python -m tests.truths.record_queries`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.truths.definitions_queries import (
    BIDS,
    BIDS_COLUMNS,
    CLOCK,
    CLOCK_COLUMNS,
    PEOPLE,
    PEOPLE_COLUMNS,
    QUERIES,
    STOCK,
    STOCK_COLUMNS,
)
from tests.truths.record import Flink, _error_of, _from_java
from tests.truths.record_aggregates import _streaming

_FILE = Path(__file__).parent / "queries.json"


def _write_tables(folder: str) -> None:
    names = ("item", "bidder", "price", "big", "ts", "seen")
    with (Path(folder) / "bids.json").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in BIDS)
    with (Path(folder) / "clock.json").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(dict(zip(("id", "ts"), row, strict=True))) + "\n" for row in CLOCK)
    for name, changes, columns in (
        ("people", PEOPLE, ("id", "name", "city", "age")),
        ("stock", STOCK, ("id", "shop", "n", "weight", "price", "ts")),
    ):
        with (Path(folder) / f"{name}.json").open("w", encoding="utf-8") as file:
            for operation, before, after in changes:
                sides = {
                    side: dict(zip(columns, row, strict=True)) if row is not None else None
                    for side, row in (("before", before), ("after", after))
                }
                file.write(json.dumps({**sides, "op": operation}) + "\n")


def _folded(environment: Any, query: str) -> list[list[Any]]:
    """The rows that are left when all changes are carried out, sorted."""
    return sorted(left_over(environment._j_tenv.sqlQuery(query).execute().collect()), key=repr)


def left_over(iterator: Any) -> list[list[Any]]:
    """The rows that are left when all changes are carried out, in order of arrival."""
    rows: list[list[Any]] = []
    try:
        while iterator.hasNext():
            row = iterator.next()
            values = [_from_java(row.getField(index)) for index in range(row.getArity())]
            if str(row.getKind().shortString()) in ("+I", "+U"):
                rows.append(values)
            else:
                rows.remove(values)
    finally:
        iterator.close()
    return rows


def main() -> None:
    flink = Flink()
    environment = _streaming(flink)
    recorded: list[dict[str, Any]] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            _write_tables(folder)
            for name, columns, form in (
                ("bids", BIDS_COLUMNS, "'json', 'json.timestamp-format.standard' = 'ISO-8601'"),
                ("clock", CLOCK_COLUMNS, "'json', 'json.timestamp-format.standard' = 'ISO-8601'"),
                ("people", PEOPLE_COLUMNS, "'debezium-json'"),
                ("stock", STOCK_COLUMNS, "'debezium-json', 'debezium-json.timestamp-format.standard' = 'ISO-8601'"),
            ):
                environment.execute_sql(
                    f"CREATE TEMPORARY TABLE {name} ({columns}) WITH ('connector' = 'filesystem', "
                    f"'path' = '{folder}/{name}.json', 'format' = {form})"
                )
            for zone, query in QUERIES:
                environment.get_config().set("table.local-time-zone", zone)
                try:
                    schema = environment._j_tenv.sqlQuery(query).getResolvedSchema()
                    types = [str(c.getDataType().getLogicalType().asSummaryString()) for c in schema.getColumns()]
                    rows = _folded(environment, query)
                    recorded.append({"time_zone": zone, "sql": query, "types": types, "rows": rows})
                except Exception as error:
                    recorded.append({"time_zone": zone, "sql": query, "refused": _error_of(error)["error"]})
                print(len(recorded), query.split("\n")[0][:80], flush=True)
    finally:
        flink.close()
    with _FILE.open("w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in recorded)
        file.write(f'{{"flink": {json.dumps(flink.version)}, "queries": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
