"""The one-machine cluster: server, node agent, controllers, images, daemons. Its parts meet over the API."""
