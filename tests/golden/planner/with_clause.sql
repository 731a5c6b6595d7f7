EXPLAIN WITH a AS (SELECT k, v + 1 AS w FROM plain), b (name, w2) AS (SELECT k, w * 2 FROM a WHERE w > 1) SELECT name, w2 FROM b WHERE w2 < 100;
