"""One rewrite per file; `planner.logical.optimize.RULES` is the order in which they run."""
