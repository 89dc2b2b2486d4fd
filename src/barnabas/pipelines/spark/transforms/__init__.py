"""What happens to rows on the way: one file per family of transforms."""
