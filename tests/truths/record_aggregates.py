"""Ask a real Apache Flink every aggregate of `definitions_aggregates.py` and write the answers as JSON.

Run it as `record.py`: `python -m tests.truths.record_aggregates`. The answers of a case are those over each set of rows
by a streaming query (the last row it shows), where order is that of arrival; the last answer is a batch query's over no
rows at all.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.truths.definitions_aggregates import GROUPS, AggregateGroup
from tests.truths.model import Group
from tests.truths.record import Flink, _error_of, _from_java

_FILE = Path(__file__).parent / "aggregates.json"


def _streaming(flink: Flink) -> Any:
    """A second environment on the same cluster, for streaming queries."""
    table: Any = importlib.import_module("pyflink.table")
    settings = table.EnvironmentSettings.new_instance().in_streaming_mode().build()
    environment = table.TableEnvironment.create(settings)
    for key in ("parallelism.default", "execution.target", "rest.address", "rest.port", "restart-strategy.type"):
        environment.get_config().set(key, flink._config.get(key, ""))
    return environment


def _last_row(environment: Any, query: str) -> list[Any]:
    iterator = environment._j_tenv.sqlQuery(query).execute().collect()
    last: list[Any] = []
    try:
        while iterator.hasNext():
            row = iterator.next()
            last = [_from_java(row.getField(index)) for index in range(row.getArity())]
    finally:
        iterator.close()
    return last


def _answers(environment: Any, cases: list[str], number: int) -> list[Any]:
    """One answer per case over one set; where the job fails, halves are asked again."""
    selected = ", ".join(f"{sql} AS v{index}" for index, sql in enumerate(cases))
    try:
        return _last_row(environment, f"SELECT {selected} FROM inputs WHERE s = {number}")
    except Exception as error:
        if len(cases) == 1:
            return [_error_of(error)]
    middle = len(cases) // 2
    return _answers(environment, cases[:middle], number) + _answers(environment, cases[middle:], number)


def record(flink: Flink, streaming: Any, group: AggregateGroup) -> dict[str, Any]:
    columns = {"s": "INT NOT NULL", "p": "BOOLEAN", "x": group.type}
    with tempfile.TemporaryDirectory() as folder:
        flink.create_table(Group(group.name, columns, group.rows(), []), folder)
        streaming.execute_sql("DROP TEMPORARY TABLE IF EXISTS inputs")
        declared = "input_index INT NOT NULL, " + ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        streaming.execute_sql(
            f"CREATE TEMPORARY TABLE inputs ({declared}) WITH ('connector' = 'filesystem', "
            f"'path' = '{folder}/rows.json', 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601')"
        )
        streaming.get_config().set("table.local-time-zone", "UTC")
        types = [flink.type_of(sql) for sql in group.cases]
        by_set = [_answers(streaming, group.cases, number) for number in range(len(group.sets))]
        by_set.append(_answers(flink._environment, group.cases, len(group.sets)))
    cases = [
        {"sql": sql, "type": types[i], "values": [answers[i] for answers in by_set]}
        for i, sql in enumerate(group.cases)
    ]
    return {"name": group.name, "type": group.type, "sets": group.sets, "cases": cases}


def main() -> None:
    flink = Flink()
    streaming = _streaming(flink)
    try:
        recorded = []
        for group in GROUPS:
            recorded.append(record(flink, streaming, group))
            print(f"aggregates: {group.name}: {len(group.cases)} cases", flush=True)
    finally:
        flink.close()
    with _FILE.open("w", encoding="utf-8") as file:
        file.write(f'{{"flink": {json.dumps(flink.version)}, "groups": [\n')
        for number, answered in enumerate(recorded):
            file.write(json.dumps({"name": answered["name"], "type": answered["type"]})[:-1])
            for key in ("sets", "cases"):
                lines = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in answered[key])
                file.write(f',\n "{key}": [\n  {lines}\n ]')
            file.write("}" + (",\n" if number + 1 < len(recorded) else "\n"))
        file.write("]}\n")


if __name__ == "__main__":
    main()
