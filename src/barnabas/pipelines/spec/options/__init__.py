"""Options of sources, sinks, transforms and formats, as rows."""
