"""Which node a command talks to, and as which user: options, stored contexts, login."""
