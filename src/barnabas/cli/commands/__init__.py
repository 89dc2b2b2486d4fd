"""Commands of `barnabas`, by subject, one file for each."""
