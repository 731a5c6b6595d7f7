EXPLAIN SELECT x + 1 AS next, y FROM (VALUES (1, 'a'), (2, 'bc')) AS v (x, y) WHERE x > 1;
