"""The client without I/O: sessions, frames, steps, retries and cluster state."""
