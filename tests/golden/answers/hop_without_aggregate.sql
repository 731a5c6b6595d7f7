SELECT auction, window_start, window_end, window_time FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) WHERE bidder = 'eve'
