SET 'execution.runtime-mode' = 'batch';
EXPLAIN SELECT k, v FROM plain ORDER BY d DESC LIMIT 4 OFFSET 2;
