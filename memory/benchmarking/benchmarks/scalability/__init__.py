"""What happens with more agents, more memories and more time."""
