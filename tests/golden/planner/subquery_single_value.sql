EXPLAIN SELECT k, (SELECT v FROM cdc WHERE cdc.k = src.k) AS v FROM src
