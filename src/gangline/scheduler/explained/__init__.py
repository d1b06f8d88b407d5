"""What the scheduler tells about its decisions beside carrying them out."""
