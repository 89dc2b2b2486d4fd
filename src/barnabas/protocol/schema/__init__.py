"""Messages as declarations, and the codecs compiled from them."""
