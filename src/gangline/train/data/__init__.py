"""Which samples of a data set a rank reads."""
