"""What jobs of the training operator's family want: one reconcile for all kinds, one table entry each."""
