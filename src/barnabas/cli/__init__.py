"""The `barnabas` command: arguments in, exit code out. What it does lives in the packages below."""
