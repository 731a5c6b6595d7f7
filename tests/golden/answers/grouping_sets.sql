SELECT city, age, COUNT(*) AS n FROM users GROUP BY GROUPING SETS ((city), (age), ())
