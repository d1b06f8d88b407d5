"""Who keeps the others waiting, told by the ranks themselves."""
