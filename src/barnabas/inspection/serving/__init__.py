"""The inspection socket of a broker: the questions by name, and the pace at which they are answered."""
