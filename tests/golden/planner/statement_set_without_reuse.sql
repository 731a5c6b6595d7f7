SET 'table.optimizer.reuse-source-enabled' = 'false';
EXPLAIN STATEMENT SET BEGIN
  INSERT INTO log SELECT k, v, 1 FROM src;
  INSERT INTO log SELECT note, v, 2 FROM src;
END;
