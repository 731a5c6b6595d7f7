"""Binding: names, types, coercions and time attributes. Syntax trees go in, typed `planner.ir` expressions come out."""
