"""Status: what a pass learnt, as the status people read, and the events its changes are worth. Pure."""
