SELECT symbol, price * 2 AS doubled FROM prices WHERE price > 1.6
