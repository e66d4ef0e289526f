"""Settings of the coordinator: `base` composes one module per integration, the others override."""
