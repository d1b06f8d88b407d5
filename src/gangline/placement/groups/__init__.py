"""What is said about gangs, by objects of several kinds."""
