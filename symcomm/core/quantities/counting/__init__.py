"""Parameters, operations and memory traffic."""
