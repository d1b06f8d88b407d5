"""Jobs as commands look them up and show them."""
