"""What an administrator brings to a cluster: definitions, images."""
