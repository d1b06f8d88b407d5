"""Every object in memory, every acknowledged write on disk: SQLite behind one writing thread."""
