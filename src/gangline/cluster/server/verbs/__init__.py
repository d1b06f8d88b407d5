"""What each verb does: get, list, watch, create, update, patch, apply, delete, logs, and the subresources."""
