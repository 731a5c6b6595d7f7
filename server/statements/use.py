"""USE CATALOG and USE: where names without a catalog or database are looked up."""

from __future__ import annotations

from planner.sql.statements import UseCatalog, UseDatabase
from server.catalog.store import DEFAULT_DATABASE
from server.statements.context import StatementContext, unknown
from server.statements.result import StatementResult, ok


async def use_catalog(statement: UseCatalog, context: StatementContext) -> StatementResult:
    catalog = context.catalog
    name = str(statement.catalog)
    if name not in catalog.catalogs():
        raise unknown("catalog", name, catalog.catalogs(), statement.catalog)
    if name != catalog.current_catalog:
        catalog.current_catalog = name
        catalog.current_database = DEFAULT_DATABASE
    return ok()


async def use_database(statement: UseDatabase, context: StatementContext) -> StatementResult:
    catalog = context.catalog
    *in_catalog, database = statement.database.parts
    name = in_catalog[0] if in_catalog else catalog.current_catalog
    if name not in catalog.catalogs():
        raise unknown("catalog", name, catalog.catalogs(), statement.database)
    if database not in catalog.databases(name):
        raise unknown("database", f"{name}.{database}", catalog.databases(name), statement.database)
    catalog.current_catalog, catalog.current_database = name, database
    return ok()
