"""Inside a rank: the MPI environment made ready for torch.distributed."""
