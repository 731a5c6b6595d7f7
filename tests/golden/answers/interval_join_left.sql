SELECT a.auction, a.bidder, a.ts, b.bidder AS next_bidder, b.ts AS next_ts
FROM bids a LEFT JOIN bids b ON a.auction = b.auction AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '3' SECOND AND a.bidder <> b.bidder
