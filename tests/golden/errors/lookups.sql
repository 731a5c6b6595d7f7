SELECT s.k FROM src s JOIN items FOR SYSTEM_TIME AS OF PROCTIME() AS i ON s.v > i.id
====
SELECT s.k FROM src s JOIN items FOR SYSTEM_TIME AS OF PROCTIME() AS i ON s.k = i.code
====
SELECT s.k FROM src s JOIN items FOR SYSTEM_TIME AS OF s.ts AS i ON s.v = i.id
====
SELECT s.k FROM src s RIGHT JOIN items FOR SYSTEM_TIME AS OF PROCTIME() AS i ON s.v = i.id
====
SELECT s.k FROM src s FULL JOIN items FOR SYSTEM_TIME AS OF PROCTIME() AS i ON s.v = i.id
====
SELECT s.k FROM src s JOIN upserts FOR SYSTEM_TIME AS OF PROCTIME() AS u ON s.k = u.k
====
CREATE VIEW prices AS SELECT kind, MAX(price) AS most FROM items GROUP BY kind;
SELECT s.k FROM src s JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() AS p ON s.k = p.kind
====
CREATE VIEW ids AS SELECT id, UUID() AS u FROM items WHERE title <> 'x';
SELECT s.k, i.u FROM src s JOIN ids FOR SYSTEM_TIME AS OF PROCTIME() AS i ON s.v = i.id AND i.u <> s.k
====
CREATE TABLE with_metadata (id INT, sent TIMESTAMP_LTZ(3) METADATA FROM 'timestamp') WITH ('connector' = 'jdbc');
SELECT s.k, sent FROM src s JOIN with_metadata FOR SYSTEM_TIME AS OF PROCTIME() AS i ON s.v = i.id
====
SET 'table.optimizer.non-deterministic-update.strategy' = 'TRY_RESOLVE';
INSERT INTO upserts (k, v) SELECT a.k, i.id FROM (SELECT k, COUNT(*) AS c FROM src GROUP BY k) a
JOIN items FOR SYSTEM_TIME AS OF PROCTIME() AS i ON CAST(a.c AS INT) = i.id
====
INSERT INTO items SELECT v, k, 1, k FROM src
