"""What a model may ask of the meta device that it has not: values, routing, caches, an encoder."""
