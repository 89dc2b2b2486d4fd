"""Records for people: reading, following, decoding and filtering them, all within bounds."""
