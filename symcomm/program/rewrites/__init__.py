"""Changes of a program that are no placement: what runs again, which stage holds what. One file each."""
