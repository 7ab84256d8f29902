"""What one rank holds: states, activations, the peak."""
