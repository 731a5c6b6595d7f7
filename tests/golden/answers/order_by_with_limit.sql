SELECT symbol, lot FROM prices ORDER BY lot DESC, symbol LIMIT 2 OFFSET 1;
