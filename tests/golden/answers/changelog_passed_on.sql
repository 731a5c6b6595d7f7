SELECT id, UPPER(name) AS name, city FROM users WHERE age IS NULL OR age > 30
