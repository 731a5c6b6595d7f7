SET 'execution.runtime-mode' = 'batch';
EXPLAIN SELECT k, COUNT(*) AS c FROM plain GROUP BY k ORDER BY c DESC, k;
