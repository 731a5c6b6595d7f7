"""A connector for tests that run whole JobGraphs in one thread: tables whose rows are Python data."""
