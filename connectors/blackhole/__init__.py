"""Flink's `blackhole` sink: takes every change and keeps none. For measuring what comes before it."""
