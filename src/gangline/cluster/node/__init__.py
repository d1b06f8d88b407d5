"""The node agent: one process that runs the pods of all nodes of the one-machine cluster."""
