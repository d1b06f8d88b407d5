"""Gets ranks started: finds the MPI, writes ``mpirun`` lines, remote shell, guards. Standard library only."""
