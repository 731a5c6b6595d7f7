-- The rank is read: it and the partition are the key, and the sink takes upserts.
EXPLAIN INSERT INTO pairs
SELECT k, rn FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM src) WHERE rn <= 3;
