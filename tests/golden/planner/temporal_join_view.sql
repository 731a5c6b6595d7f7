EXPLAIN SELECT s.k, r.rate FROM src s LEFT JOIN versioned_rates FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k
