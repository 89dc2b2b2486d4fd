"""Web console: a page that shows a cluster and changes it as the signed-in user."""
