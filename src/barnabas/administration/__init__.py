"""Store changes that every broker makes: topics, settings, producer ids and imported log directories."""
