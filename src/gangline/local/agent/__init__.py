"""The node agent: pods as processes, in one of three isolation modes."""
