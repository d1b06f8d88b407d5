"""What is told of gangs that wait, beside what would help them."""
