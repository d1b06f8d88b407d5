"""What Horovod's frameworks share: exceptions, process sets, elastic state."""
