"""What is told of gangs that wait: why, and who is in the way."""
