"""The relational tree: frozen nodes, the builder from queries, and the rewrite rules."""
