"""A scan as a Source operator: what the connector reads, what is computed from it, and its event time."""

from __future__ import annotations

from planner.analysis.coercion import cast_to
from planner.catalog import ComputedColumn, MetadataColumn, PhysicalColumn, TableEntry
from planner.errors import SqlError, SqlState
from planner.ir import operators as ir
from planner.ir.expressions import Expression, InputRef, input_indexes, shift_inputs
from planner.logical.nodes import Scan
from planner.settings import PlannerSettings, parse_duration_ms, parse_positive


def table_ref(identifier: str, entry: TableEntry, options: dict[str, str]) -> ir.TableRef:
    return ir.TableRef(
        identifier=identifier,
        connector=options["connector"],
        options=options,
        physical=ir.Schema(tuple(ir.Column(c.name, c.type) for c in entry.physical)),
        primary_key=entry.primary_key.columns if entry.primary_key is not None else (),
    )


def source_operator(scan: Scan, uid: str, settings: PlannerSettings) -> ir.Source:
    """The operator reads only the columns that the kept ones need."""
    physical, metadata = scan.entry.physical, scan.entry.metadata
    source_row: list[PhysicalColumn | MetadataColumn] = [*physical, *metadata]
    positions = {column.name: i for i, column in enumerate(source_row)}
    kept = [scan.entry.columns[i] for i in scan.kept]
    read: set[int] = set()
    for column in kept:
        if isinstance(column, ComputedColumn):
            read |= input_indexes(column.expression)
        else:
            read.add(positions[column.name])
    if not read:
        # Computed columns alone, such as PROCTIME(): rows must be counted nevertheless.
        read.add(0)
    ordered = sorted(read)
    mapping = {old: new for new, old in enumerate(ordered)}
    scan_columns = tuple(ir.Column(c.name, c.type) for c in physical if positions[c.name] in read)
    metadata_columns = tuple(
        ir.MetadataColumn(c.name, c.key, scan.capabilities.metadata[c.key].type)
        for c in metadata
        if positions[c.name] in read
    )
    read_types = [c.type for c in scan_columns] + [m.type for m in metadata_columns]
    projections: list[Expression] = []
    for column in kept:
        if isinstance(column, ComputedColumn):
            projections.append(shift_inputs(column.expression, mapping))
            continue
        index = mapping[positions[column.name]]
        projections.append(cast_to(InputRef(index, read_types[index]), column.type))
    return ir.Source(
        uid=uid,
        name=f"Source: {scan.path.name}",
        table=table_ref(str(scan.path), scan.entry, scan.options),
        scan_columns=ir.Schema(scan_columns),
        metadata_columns=metadata_columns,
        projections=tuple(projections),
        output=ir.Schema(tuple(ir.Column(c.name, c.type) for c in scan.columns)),
        watermark=_watermark(scan, settings),
        bounded=scan.capabilities.is_bounded,
        changelog=scan.capabilities.source_changelog,
    )


def _watermark(scan: Scan, settings: PlannerSettings) -> ir.WatermarkSpec | None:
    watermark = scan.entry.watermark
    if watermark is None:
        return None
    positions = {old: new for new, old in enumerate(scan.kept)}
    rowtime = [c.name for c in scan.entry.columns].index(watermark.column)
    interval_ms = settings.auto_watermark_interval_ms
    emit = scan.options.get("scan.watermark.emit.strategy")
    strategy = ir.WatermarkStrategy.ON_EVENT if interval_ms == 0 else ir.WatermarkStrategy.ON_PERIODIC
    if emit is not None:
        try:
            strategy = ir.WatermarkStrategy(emit.strip().lower())
        except ValueError:
            message = f"'scan.watermark.emit.strategy' = '{emit}': expected on-periodic or on-event"
            raise SqlError(SqlState.INVALID_PARAMETER, message) from None
    idle_key = "scan.watermark.idle-timeout"
    idle_ms = settings.source_idle_timeout_ms
    if idle_key in scan.options:
        idle_ms = parse_duration_ms(idle_key, scan.options[idle_key])
    return ir.WatermarkSpec(
        rowtime_index=positions[rowtime],
        expression=shift_inputs(watermark.expression, positions),
        strategy=strategy,
        interval_ms=interval_ms,
        idle_timeout_ms=idle_ms,
    )


def configured_parallelism(options: dict[str, str], key: str, max_parallelism: int) -> int | None:
    """`scan.parallelism` or `sink.parallelism` of a table; None if it is not given."""
    if key not in options:
        return None
    parallelism = parse_positive(key, options[key])
    if parallelism > max_parallelism:
        message = f"'{key}' = '{parallelism}' is above pipeline.max-parallelism ({max_parallelism})"
        raise SqlError(SqlState.INVALID_PARAMETER, message)
    return parallelism
