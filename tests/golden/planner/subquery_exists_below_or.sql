EXPLAIN SELECT k FROM src WHERE v > 3 OR EXISTS (SELECT 1 FROM cdc WHERE cdc.k = src.k AND cdc.v > 1)
