"""Where costs meet, and where they are least."""
