SELECT city, COUNT(*) AS n, SUM(age) AS years, MIN(age) AS youngest, MAX(age) AS oldest FROM users GROUP BY city
