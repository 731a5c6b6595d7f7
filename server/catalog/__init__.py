"""Definitions of tables and views.

`store.py` keeps the shared, durable catalog `headrace`; `session_catalog.py` is what one session sees: that catalog,
its own `default_catalog`, and temporary objects on top. `validate.py` asks the connectors whether WITH options make
sense. Definitions are bound by the planner when they are created; nothing here parses SQL.
"""
