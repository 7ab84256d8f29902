"""Facts of a model that worksheets take besides quantities: what is counted, and the rates of a device."""
