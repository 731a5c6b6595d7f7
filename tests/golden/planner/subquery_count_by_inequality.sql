EXPLAIN SELECT id, (SELECT COUNT(*) FROM more WHERE more.v > cdc.v) AS n FROM cdc
