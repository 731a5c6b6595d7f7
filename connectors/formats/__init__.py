"""Formats turn bytes into record batches and back, a whole batch at a time; each package has a `format` module."""
