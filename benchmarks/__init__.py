"""Benchmarks of whole pipelines and of single steps; `make bench` runs the former."""
