SELECT ws, COUNT(*) AS n FROM (
  SELECT COALESCE(l.window_start, r.window_start) AS ws, COALESCE(l.window_end, r.window_end) AS we
  FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND) l
  FULL JOIN HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND) r
  ON l.auction = r.auction AND l.window_start = r.window_start AND l.window_end = r.window_end AND r.price > l.price)
GROUP BY ws, we
