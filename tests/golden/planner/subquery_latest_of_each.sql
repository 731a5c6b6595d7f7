EXPLAIN SELECT id, (SELECT v FROM src WHERE src.k = cdc.k ORDER BY ts DESC LIMIT 1) AS last_v FROM cdc
