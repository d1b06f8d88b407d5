"""TrainJob and the runtimes that it names."""
