"""Bytes and times of collectives and messages."""
