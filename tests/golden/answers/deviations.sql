SELECT lot, VAR_POP(price) AS vp, STDDEV_SAMP(price) AS ss FROM prices GROUP BY lot
