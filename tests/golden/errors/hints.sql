SELECT /*+ MULTI_JOIN(src) */ k FROM src
====
SELECT /*+ BROADCAST(other) */ k FROM src
====
SELECT /*+ 'STATE_TTL' */ k FROM src
====
SELECT /*+ STATE_TTL('s' = '1 d') STATE_TTL('m' = '1 d') */ s.k FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT /*+ STATE_TTL('s' = '1 d', 'x' = '1 d') */ s.k FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT /*+ STATE_TTL('src' = '1 d') */ s.k FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT /*+ STATE_TTL('s' = '1 d', 'm' = 'long') */ s.k FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT /*+ STATE_TTL('s' = '1 d'), STATE_TTL('s' = '2 d') */ s.k FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT /*+ STATE_TTL(s, m) */ s.k FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT /*+ STATE_TTL('p' = '1 d') */ p.k FROM plain AS p, UNNEST(tags) AS t (x)
====
SELECT /*+ LOOKUP('table' = 'm') */ s.k FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT /*+ LOOKUP('async' = 'true') */ m.k FROM more AS m JOIN upserts FOR SYSTEM_TIME AS OF m.proc AS u ON m.k = u.k
====
SELECT /*+ LOOKUP('table' = 'upserts') */ m.k FROM more AS m JOIN upserts FOR SYSTEM_TIME AS OF m.proc AS u ON m.k = u.k
====
SELECT /*+ LOOKUP('table' = 'u', 'asinc' = 'true') */ m.k
FROM more AS m JOIN upserts FOR SYSTEM_TIME AS OF m.proc AS u ON m.k = u.k
====
SELECT /*+ LOOKUP('table' = 'u', 'async' = 'perhaps') */ m.k
FROM more AS m JOIN upserts FOR SYSTEM_TIME AS OF m.proc AS u ON m.k = u.k
====
SELECT /*+ LOOKUP('table' = 'u', 'max-attempts' = '0') */ m.k
FROM more AS m JOIN upserts FOR SYSTEM_TIME AS OF m.proc AS u ON m.k = u.k
====
SELECT /*+ LOOKUP('table' = 'u', 'fixed-delay' = 'soon') */ m.k
FROM more AS m JOIN upserts FOR SYSTEM_TIME AS OF m.proc AS u ON m.k = u.k
====
SELECT /*+ LOOKUP('table' = 'u', 'retry-predicate' = 'lookup_miss') */ m.k
FROM more AS m JOIN upserts FOR SYSTEM_TIME AS OF m.proc AS u ON m.k = u.k
====
SELECT /*+ LOOKUP('table' = 'u'), LOOKUP('table' = 'u') */ m.k
FROM more AS m JOIN upserts FOR SYSTEM_TIME AS OF m.proc AS u ON m.k = u.k
====
SELECT /*+ STATE_TTL('a' = '1 d') */ a.k FROM more AS a JOIN more AS b ON a.k = b.k AND a.at = b.at
