SELECT auction + 1000 AS id, price * 0.5 AS half, EXTRACT(SECOND FROM ts) AS s FROM bids WHERE price BETWEEN 1 AND 20
