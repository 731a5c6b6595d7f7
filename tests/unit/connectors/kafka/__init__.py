"""The kafka connector without a broker."""
