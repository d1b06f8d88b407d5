"""The ``mpirun`` before every other one: standard library only, started by its path."""
