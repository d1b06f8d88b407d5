"""The training operator's family of kinds: roles of pods that find each other by environment variables."""
