"""Derived stream properties of a logical plan: changelog mode, upsert keys, emission, watermarks, state bound."""
