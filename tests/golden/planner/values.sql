EXPLAIN INSERT INTO log VALUES ('a', 1, 2), ('b', NULL, 3.5);
