"""What the paper measures."""
