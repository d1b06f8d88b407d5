"""What pods ask of their neighbours and prefer of nodes: read, indexed, obeyed, and told where it binds."""
