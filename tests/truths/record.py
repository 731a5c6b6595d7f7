"""Ask a real Apache Flink every question of `definitions_*.py` and write the answers as JSON.

Run it by the Python of an environment that holds `apache-flink` (2.2.1) and Java 17, from the repository's root:

    python -m tests.truths.record [numbers logic text time casts]

One mini cluster serves all questions; a table's expressions go in one SELECT. Where that job fails, halves are
asked again until each failing expression and row stands alone, so errors are recorded row by row.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.truths.model import Group

MODULES = ("numbers", "logic", "text", "time", "casts")
CASES_PER_JOB = 60
_FOLDER = Path(__file__).parent


class Flink:
    """A mini cluster and a batch table environment inside one JVM."""

    def __init__(self) -> None:
        # Flink is not in this project's environment: its modules are looked up where they are.
        table: Any = importlib.import_module("pyflink.table")
        jvm: Any = importlib.import_module("pyflink.java_gateway").get_gateway().jvm
        configuration = jvm.org.apache.flink.configuration.Configuration()
        for key, value in {"rest.port": "0", "rest.bind-port": "0", "rest.address": "localhost"}.items():
            configuration.setString(key, value)
        builder = jvm.org.apache.flink.runtime.minicluster.MiniClusterConfiguration.Builder()
        builder.setConfiguration(configuration).setNumTaskManagers(1).setNumSlotsPerTaskManager(4)
        self._cluster = jvm.org.apache.flink.runtime.minicluster.MiniCluster(builder.build())
        self._cluster.start()
        address = self._cluster.getRestAddress().get()
        environment = table.TableEnvironment.create(table.EnvironmentSettings.new_instance().in_batch_mode().build())
        self._config = environment.get_config()
        for key, value in {
            "parallelism.default": "1",
            "execution.target": "remote",
            "rest.address": address.getHost(),
            "rest.port": str(address.getPort()),
            "restart-strategy.type": "none",
        }.items():
            self._config.set(key, value)
        self._environment = environment
        self._java = environment._j_tenv
        self.version = str(jvm.org.apache.flink.runtime.util.EnvironmentInformation.getVersion())

    def create_table(self, group: Group, folder: str) -> None:
        path = Path(folder) / "rows.json"
        columns = list(group.columns.items())
        with path.open("w", encoding="utf-8") as file:
            for number, row in enumerate(group.rows):
                record: dict[str, Any] = {"input_index": number}
                for (name, type_text), value in zip(columns, row, strict=True):
                    record[name] = _to_json_format(value, type_text)
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        declared = ", ".join(["input_index INT NOT NULL", *(f"`{name}` {kind}" for name, kind in columns)])
        self._config.set("table.local-time-zone", group.time_zone)
        self._environment.execute_sql("DROP TEMPORARY TABLE IF EXISTS inputs")
        self._environment.execute_sql(
            f"CREATE TEMPORARY TABLE inputs ({declared}) WITH ('connector' = 'filesystem', 'path' = '{path}', "
            "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601')"
        )

    def type_of(self, sql: str) -> str:
        table = self._java.sqlQuery(f"SELECT {sql} AS v FROM inputs")
        data_type = table.getResolvedSchema().getColumns().get(0).getDataType()
        return str(data_type.getLogicalType().asSummaryString())

    def select(self, text: str) -> list[list[Any]]:
        iterator = self._java.sqlQuery(text).execute().collect()
        rows = []
        try:
            while iterator.hasNext():
                row = iterator.next()
                rows.append([_from_java(row.getField(index)) for index in range(row.getArity())])
        finally:
            iterator.close()
        return rows

    def close(self) -> None:
        self._cluster.close()


def _to_json_format(value: Any, type_text: str) -> Any:
    """Our encoding → the one Flink's JSON format reads."""
    if value is None:
        return None
    if type_text.startswith("ROW<"):
        names = [part.split()[0] for part in type_text[4:-1].split(",")]
        return dict(zip(names, value, strict=True))
    if type_text.startswith("MAP<"):
        return dict(value)
    if "BYTES" in type_text or "BINARY" in type_text:
        return base64.b64encode(bytes.fromhex(value)).decode()
    return value


def _from_java(value: Any) -> Any:
    """A field of a Java row → our encoding."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return repr(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    name = value.getClass().getName()
    if name in ("java.time.LocalDateTime", "java.time.LocalTime"):
        text = str(value.toString())
        return text + ":00" if len(text.rpartition("T")[2]) == 5 else text
    if name == "org.apache.flink.types.Row":
        return [_from_java(value.getField(index)) for index in range(value.getArity())]
    if name.startswith("["):
        return [_from_java(item) for item in value]
    if name.endswith("Map"):
        pairs = [[_from_java(entry.getKey()), _from_java(entry.getValue())] for entry in value.entrySet()]
        return sorted(pairs, key=repr)
    return str(value.toString())


def _error_of(error: Exception) -> dict[str, str]:
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return {"error": f"{type(error).__name__}: {str(error)[:160]}"}
    while cause.getCause() is not None:
        cause = cause.getCause()
    message = " ".join(str(cause.getMessage()).split())
    return {"error": f"{cause.getClass().getName().rpartition('.')[2]}: {message[:160]}"}


def _evaluate(flink: Flink, cases: list[str], rows: range, answers: dict[str, list[Any]]) -> None:
    """Fill `answers[case][row]`; a job that fails is asked again by halves, cases first, then rows."""
    if not cases or not rows:
        return
    selected = ", ".join(f"{sql} AS v{index}" for index, sql in enumerate(cases))
    try:
        where = f"input_index >= {rows.start} AND input_index < {rows.stop}"
        result = flink.select(f"SELECT input_index, {selected} FROM inputs WHERE {where}")
    except Exception as error:
        if len(cases) > 1:
            middle = len(cases) // 2
            _evaluate(flink, cases[:middle], rows, answers)
            _evaluate(flink, cases[middle:], rows, answers)
        elif len(rows) > 1:
            middle = (rows.start + rows.stop) // 2
            _evaluate(flink, cases, range(rows.start, middle), answers)
            _evaluate(flink, cases, range(middle, rows.stop), answers)
        else:
            answers[cases[0]][rows.start] = _error_of(error)
        return
    for row in result:
        for sql, value in zip(cases, row[1:], strict=True):
            answers[sql][row[0]] = value


def record_group(flink: Flink, group: Group) -> dict[str, Any]:
    recorded: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        flink.create_table(group, folder)
        types: dict[str, str] = {}
        refused: dict[str, dict[str, str]] = {}
        for sql in [*group.cases, *group.type_only]:
            try:
                types[sql] = flink.type_of(sql)
            except Exception as error:
                refused[sql] = _error_of(error)
        answers: dict[str, list[Any]] = {sql: [None] * len(group.rows) for sql in group.cases}
        valid = [sql for sql in dict.fromkeys(group.cases) if sql in types]
        for start in range(0, len(valid), CASES_PER_JOB):
            _evaluate(flink, valid[start : start + CASES_PER_JOB], range(len(group.rows)), answers)
        for sql in dict.fromkeys(group.cases):
            recorded.append(
                {"sql": sql, "refused": refused[sql]["error"]}
                if sql in refused
                else {"sql": sql, "type": types[sql], "values": answers[sql]}
            )
        recorded += [{"sql": sql, "type": types[sql]} for sql in group.type_only if sql in types]
        filters: list[dict[str, Any]] = []
        for sql in group.filters:
            try:
                passed = flink.select(f"SELECT input_index FROM inputs WHERE {sql}")
                filters.append({"where": sql, "rows": [row[0] for row in passed]})
            except Exception as error:
                filters.append({"where": sql, **_error_of(error)})
    columns = [{"name": name, "type": kind} for name, kind in group.columns.items()]
    return {
        "name": group.name,
        "time_zone": group.time_zone,
        "columns": columns,
        "rows": group.rows,
        "cases": recorded,
        "filters": filters,
    }


def write(path: Path, version: str, groups: list[dict[str, Any]]) -> None:
    """One line per row and per case, so that a change of one answer is a change of one line."""
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{"flink": {json.dumps(version)}, "groups": [\n')
        for number, group in enumerate(groups):
            head = {key: group[key] for key in ("name", "time_zone", "columns")}
            file.write(json.dumps(head, ensure_ascii=False)[:-1])
            for key in ("rows", "cases", "filters"):
                lines = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in group[key])
                file.write(f',\n "{key}": [\n  {lines}\n ]' if group[key] else f',\n "{key}": []')
            file.write("}" + (",\n" if number + 1 < len(groups) else "\n"))
        file.write("]}\n")


def main(names: list[str]) -> None:
    flink = Flink()
    try:
        for name in names or MODULES:
            groups: list[Group] = importlib.import_module(f"tests.truths.definitions_{name}").GROUPS
            answered = []
            for group in groups:
                answered.append(record_group(flink, group))
                print(f"{name}: {group.name}: {len(answered[-1]['cases'])} cases", flush=True)
            write(_FOLDER / f"{name}.json", flink.version, answered)
    finally:
        flink.close()


if __name__ == "__main__":
    main(sys.argv[1:])
