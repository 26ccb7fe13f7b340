"""Projects: a team's space, who works in it, and which one a request is about."""
