EXPLAIN INSERT INTO stamped SELECT k, ts, v FROM src;
