"""A model's forward pass as a graph, and its lowering to a plan."""
