SELECT auction, bidder, price, channel, url, "dateTime", extra
FROM bid b WHERE "dateTime" = (SELECT max("dateTime") FROM bid o WHERE o.auction = b.auction AND o.bidder = b.bidder)
