EXPLAIN SELECT title, window_end, COUNT(*) FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE) s
JOIN items FOR SYSTEM_TIME AS OF PROCTIME() AS i ON s.v = i.id GROUP BY title, window_start, window_end
