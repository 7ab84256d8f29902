"""The memory of one rank: states, activations, the peak."""
