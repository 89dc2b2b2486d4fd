"""What a follower does: it fetches from the leaders of its partitions, and cuts its log where they differ."""
