SET 'parallelism.default' = '4';
EXPLAIN STATEMENT SET BEGIN
  INSERT INTO log SELECT k, v, 1 FROM src;
  INSERT INTO out_t SELECT k, window_start, COUNT(*) FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end;
END;
