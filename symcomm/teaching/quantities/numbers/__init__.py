"""The numbers of a number format, and sums and gradients in it."""
