"""Text → statements: our splitter and statement dispatcher around a sqlglot subclass with Calcite's precedence.

sqlglot trees do not leave the planner, and `analysis` is the last phase that reads them.
"""
