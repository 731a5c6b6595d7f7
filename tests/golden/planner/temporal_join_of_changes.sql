EXPLAIN SELECT c.id, c.v, r.v AS version FROM timed_cdc c LEFT JOIN timed_upserts FOR SYSTEM_TIME AS OF c.ts AS r ON c.k = r.k
