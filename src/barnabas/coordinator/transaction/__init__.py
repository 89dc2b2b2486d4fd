"""Transaction coordinator: transactional ids, their producers, and atomic commit or abort."""
