"""Other systems that run the same tasks, each installed from the package index by itself."""
