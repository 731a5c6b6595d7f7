SET 'table.local-time-zone' = 'Asia/Shanghai';
EXPLAIN SELECT window_start, window_end, SUM(v) FROM TUMBLE(TABLE more, DESCRIPTOR(at), INTERVAL '1' DAY) GROUP BY window_start, window_end;
