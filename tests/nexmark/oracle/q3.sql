SELECT p.name, p.city, p.state, a.id
FROM auction a, person p
WHERE a.seller = p.id AND a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')
