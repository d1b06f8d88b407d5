"""What Gangline is on a cluster: the objects that it consists of, and how they get there and away again."""
