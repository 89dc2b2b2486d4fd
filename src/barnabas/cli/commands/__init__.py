"""The commands of `barnabas`, one file for each."""
