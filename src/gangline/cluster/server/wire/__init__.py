"""Objects as bytes and bytes as objects: discovery, OpenAPI, protobuf, selectors, the forms of an answer."""
