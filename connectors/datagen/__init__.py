"""Flink's `datagen` source: random or sequential values per column, paced, for trying things out.

`fields` turns the options of a column into a vectorised generator; `connector` offers them as a table.
"""
