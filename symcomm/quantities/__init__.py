"""The quantities: each is derived by one function in one file, which declares it, or is a worksheet."""

from pathlib import Path

from symcomm.quantities.declared import Registry

QUANTITIES = Registry(__name__, __path__, Path(__file__).parent.parent / "worksheets")
