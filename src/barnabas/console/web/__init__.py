"""Web application of the console: sessions, security headers, routes, assets."""
