EXPLAIN SELECT c.k, c.v FROM cdc AS c JOIN more AS m ON c.k = m.k ORDER BY v LIMIT 2
