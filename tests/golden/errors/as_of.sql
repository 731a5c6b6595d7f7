SELECT s.k FROM src AS s RIGHT JOIN upserts FOR SYSTEM_TIME AS OF s.ts AS u ON s.k = u.k
====
SELECT s.k FROM src AS s FULL JOIN upserts FOR SYSTEM_TIME AS OF s.ts AS u ON s.k = u.k
====
SELECT s.k FROM src AS s, upserts FOR SYSTEM_TIME AS OF s.ts AS u WHERE s.k = u.k
====
SELECT s.k FROM src AS s CROSS JOIN upserts FOR SYSTEM_TIME AS OF s.ts AS u
====
SELECT m.k FROM more AS m JOIN upserts FOR SYSTEM_TIME AS OF m.sent AS u ON m.k = u.k
====
SELECT s.k FROM (SELECT k, CAST(ts AS TIMESTAMP(3)) AS ts FROM src) AS s
JOIN upserts FOR SYSTEM_TIME AS OF s.ts AS u ON s.k = u.k
====
SELECT s.k FROM src AS s JOIN upserts FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 00:00:00' AS u ON s.k = u.k
====
SELECT s.k FROM src AS s JOIN upserts FOR SYSTEM_TIME AS OF s.ts + INTERVAL '1' HOUR AS u ON s.k = u.k
====
SELECT s.k FROM src AS s JOIN upserts FOR SYSTEM_TIME AS OF s.t AS u ON s.k = u.k
====
SELECT s.k FROM src AS s JOIN upserts FOR SYSTEM_TIME AS OF u.k AS u ON s.k = u.k
====
SELECT s.k FROM src AS s JOIN more AS m ON s.k = m.k JOIN timed_upserts FOR SYSTEM_TIME AS OF s.ts AS u ON s.k = u.k
====
SELECT s.k FROM more AS s JOIN src AS m ON s.k = m.k JOIN timed_upserts FOR SYSTEM_TIME AS OF s.proc AS u ON s.k = u.k
