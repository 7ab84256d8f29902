"""Ways into a graph other than a layer table: a model's configuration, a printed module tree, a live module.

Each reader gives a :class:`symcomm.core.readers.blueprint.Blueprint`: layer tables for the parts of the model and the
sizes that were found. Nothing here knows a cost.
"""
