"""The quantities: each is derived by one function in one file, which declares it, or is a worksheet."""

from pathlib import Path

from symcomm.core.quantities.declared import Registry

_HERE = Path(__file__).parent
# Any package of symcomm may bring quantities in a folder of that name: they are found there, so that core imports none.
_OTHERS = sorted(folder for folder in _HERE.parents[1].glob("*/quantities") if folder != _HERE)
QUANTITIES = Registry(
    {__name__: __path__} | {f"symcomm.{folder.parent.name}.quantities": [str(folder)] for folder in _OTHERS},
    _HERE.parent / "worksheets",
)
