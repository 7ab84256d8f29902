"""The engine: text to graph, graph to program, program to quantities. It imports none of the other packages."""
