SELECT window_start, COUNT(*) AS n, COUNT(next_bidder) AS followed
FROM TUMBLE((
  SELECT a.ts, b.bidder AS next_bidder
  FROM bids a LEFT JOIN bids b ON a.auction = b.auction AND b.ts BETWEEN a.ts - INTERVAL '4' SECOND AND a.ts + INTERVAL '3' SECOND AND a.price < b.price
), DESCRIPTOR(ts), INTERVAL '5' SECOND)
GROUP BY window_start, window_end
