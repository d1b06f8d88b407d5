"""From a socket to a request that may be answered: connections, sign-in, limits, the table of handlers."""
