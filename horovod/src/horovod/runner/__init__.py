"""Start ranks from Python: ``horovod.run(function, np=4)``."""
