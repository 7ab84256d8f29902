"""Facts of a model that worksheets take other than quantities: what is counted, and the rates of a device."""
