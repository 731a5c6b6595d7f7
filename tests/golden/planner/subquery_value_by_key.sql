EXPLAIN SELECT k, (SELECT v FROM cdc WHERE cdc.id = more.id) AS v FROM more
