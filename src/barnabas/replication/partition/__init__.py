"""One partition on this broker: its leadership, followers, ISR and throttles."""
