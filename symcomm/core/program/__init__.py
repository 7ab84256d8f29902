"""One program for a training step: what every rank computes, moves and keeps, in loops; schedules order it."""
