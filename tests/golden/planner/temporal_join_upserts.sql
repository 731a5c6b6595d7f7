EXPLAIN SELECT s.k, s.v, r.v AS version FROM src s LEFT JOIN timed_upserts FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k AND r.v > s.v
