"""The quantities: each is derived from the graph by one function in one file, which declares it."""

from symcomm.quantities.declared import Registry

QUANTITIES = Registry(__name__, __path__)
