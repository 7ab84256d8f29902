"""What a number format holds, and what becomes of sums and gradients in it."""
