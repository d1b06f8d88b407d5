"""Why a job waits and what would help; what its placement is worth: as plain values."""
