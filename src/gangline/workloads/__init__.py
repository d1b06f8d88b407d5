"""An object read once: what a pod shows of itself, as values that every face shares. Pure."""
