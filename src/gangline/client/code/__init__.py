"""The code of a program on its way to a cluster: from a folder or a repository, and what MPI needs."""
