EXPLAIN SELECT l.k, l.window_start, p.v FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) l JOIN plain p ON l.k = p.k
