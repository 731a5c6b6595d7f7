SELECT auction, bidder, 0.908::DECIMAL(4, 3) * price::DECIMAL(19, 0), "dateTime", extra FROM bid
