"""Where pods go: ``(snapshot, pods) -> Decisions``, and why not. Pure."""
