SET 'execution.runtime-mode' = 'batch';
EXPLAIN SELECT k, v, RANK() OVER (PARTITION BY k ORDER BY d) AS r FROM plain;
