SET 'execution.runtime-mode' = 'batch';
EXPLAIN INSERT INTO appended SELECT k, CAST(v AS BIGINT) FROM plain EXCEPT SELECT k, CAST(v + 1 AS BIGINT) FROM plain
