"""A search over strategies and sizes: closed forms derived once a structure, then evaluated for every configuration."""
