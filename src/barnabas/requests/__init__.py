"""From a frame to its handler and back: the dispatcher, what a handler gets besides the request, what
several handlers share, and what of a handler is an idea of its own. `handlers` has a file for each API."""
