"""Where requests wait whose answer cannot be given yet: a timing wheel and delayed operations."""
