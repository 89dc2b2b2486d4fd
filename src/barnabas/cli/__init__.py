"""The `barnabas` command: arguments in, exit code out. The work is done by the packages below."""
