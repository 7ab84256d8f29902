"""Times, rates and what limits them."""
