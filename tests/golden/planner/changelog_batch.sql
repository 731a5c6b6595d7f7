SET 'parallelism.default' = '4';
SET 'execution.runtime-mode' = 'batch';
EXPLAIN INSERT INTO appended SELECT k, SUM(v) FROM plain GROUP BY k;
