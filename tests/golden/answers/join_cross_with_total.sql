SELECT u.id, u.age, t.oldest FROM users AS u CROSS JOIN (SELECT MAX(age) AS oldest FROM users) AS t WHERE u.age < t.oldest
