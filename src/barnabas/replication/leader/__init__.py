"""What a leader knows of its readers: followers and the ISR, fetch sessions, and requests that wait."""
