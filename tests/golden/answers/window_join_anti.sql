SELECT l.auction, l.bidder, l.window_start FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) l
WHERE l.auction NOT IN (
  SELECT r.auction FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) r
  WHERE l.window_start = r.window_start AND l.window_end = r.window_end AND r.price > 12)
