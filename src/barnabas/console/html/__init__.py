"""HTML as typed functions: elements that escape what they hold, components of the pages, charts."""
