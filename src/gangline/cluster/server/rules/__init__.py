"""What an object must be to be stored: defaults, validation, schemas, admission. Values in, values out."""
