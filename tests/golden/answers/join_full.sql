SELECT a.bidder, a.n, b.bidder AS other, b.total FROM
  (SELECT bidder, COUNT(*) AS n FROM bids WHERE channel = 'web' GROUP BY bidder) AS a
  FULL JOIN (SELECT bidder, SUM(price) AS total FROM bids WHERE channel = 'app' GROUP BY bidder) AS b
  ON a.bidder = b.bidder AND a.n < 3
