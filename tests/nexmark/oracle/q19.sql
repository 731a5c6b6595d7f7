WITH placed AS (
  SELECT *, 1 + (SELECT count(*) FROM bid o WHERE o.auction = b.auction AND o.price > b.price) AS place FROM bid b
)
SELECT auction, bidder, price, channel, url, "dateTime", extra, place FROM placed WHERE place <= 10
