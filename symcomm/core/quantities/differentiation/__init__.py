"""The gradients of a table's rows."""
