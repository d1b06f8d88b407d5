"""Small parts that other projects import from here."""
