"""Which running gangs give way: to priority and quota, or for a while by attained service."""
