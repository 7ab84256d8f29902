"""Measurements and fitted laws."""
