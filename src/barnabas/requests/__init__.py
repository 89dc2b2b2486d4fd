"""From a frame to its handler and back: the dispatcher, what a handler gets besides the request, and what
several handlers share. It knows no API; `handlers` has a file for each."""
