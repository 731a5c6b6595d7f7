SET 'table.optimizer.reuse-sub-plan-enabled' = 'false';
EXPLAIN STATEMENT SET BEGIN
  INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k;
  INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k;
END;
