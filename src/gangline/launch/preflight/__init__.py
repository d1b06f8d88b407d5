"""What hosts are asked before ranks are started on them, and what is found. Standard library only."""
