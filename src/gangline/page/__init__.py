"""The web page: a shell over the Python client; what it shows is computed where the commands compute it."""
