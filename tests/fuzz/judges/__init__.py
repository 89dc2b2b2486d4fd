"""Judges of a broker under the fuzzer, one question each. A complaint begins with its kind and a colon."""
