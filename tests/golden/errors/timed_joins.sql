SELECT a.k, b.v FROM timed_cdc a JOIN src b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR
====
SELECT a.k, b.v FROM src a JOIN timed_upserts b ON a.k = b.k AND b.ts = a.ts
====
SELECT l.k FROM TUMBLE(TABLE timed_cdc, DESCRIPTOR(ts), INTERVAL '5' SECOND) l JOIN TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) r ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end
====
SELECT l.k FROM TUMBLE(TABLE more, DESCRIPTOR(proc), INTERVAL '5' SECOND) l JOIN TUMBLE(TABLE more, DESCRIPTOR(proc), INTERVAL '5' SECOND) r ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end
====
SELECT s.k FROM src s JOIN rates FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k
====
SELECT s.k FROM src s JOIN upserts FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k
====
CREATE VIEW totals_of_rates AS SELECT k, MAX(valid_from) AS latest FROM rates GROUP BY k;
SELECT s.k FROM src s JOIN totals_of_rates FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k
====
SELECT s.k FROM src s JOIN timed_cdc FOR SYSTEM_TIME AS OF s.ts AS c ON s.k = c.k
====
SELECT s.k FROM src s JOIN timed_cdc FOR SYSTEM_TIME AS OF s.ts AS c ON s.v > c.id
====
SELECT s.k FROM src s JOIN versioned_rates FOR SYSTEM_TIME AS OF s.ts AS r ON s.k IS NOT DISTINCT FROM r.k
====
SELECT m.k FROM more m JOIN timed_upserts FOR SYSTEM_TIME AS OF m.at AS r ON m.k = r.k
====
SELECT m.k FROM more m JOIN timed_upserts FOR SYSTEM_TIME AS OF m.proc AS r ON m.k = r.k
====
SELECT s.k FROM src s JOIN timed_upserts FOR SYSTEM_TIME AS OF s.ts + INTERVAL '1' SECOND AS r ON s.k = r.k
====
SELECT s.k FROM src s RIGHT JOIN timed_upserts FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k
====
SELECT COUNT(*) FROM TUMBLE((SELECT r.ts FROM src s JOIN timed_upserts FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k), DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end
====
SELECT COUNT(*) FROM TUMBLE((SELECT a.ts FROM src a JOIN src b ON a.k = b.k), DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end
