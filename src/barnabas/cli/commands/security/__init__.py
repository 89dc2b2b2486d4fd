"""Commands on users, access rules, delegation tokens, and files of `--secure`."""
