"""A training that goes on with other ranks when some are lost or come."""
