"""Gets ranks started: the MPI, ``mpirun`` lines, remote shell, supervisors. Standard library only."""
