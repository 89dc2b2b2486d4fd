"""The test kit over HTTP."""
