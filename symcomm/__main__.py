"""``python -m symcomm`` is the command ``symcomm``."""

from symcomm.cli import main

main(prog_name="symcomm")
