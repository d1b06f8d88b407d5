"""Options and arguments that several commands share, and what follows from them."""
