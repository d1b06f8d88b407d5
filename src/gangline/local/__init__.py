"""Shell: the one-machine cluster: store, API server, built-in controllers, node agent, local images."""
