"""Services: the daemons of the one-machine cluster, the operator alone, the scheduler alone."""
