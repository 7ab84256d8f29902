"""What every rank does in a training step, and when: orders of pipeline schedules, and their events."""
