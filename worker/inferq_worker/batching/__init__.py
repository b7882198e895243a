"""Which rows run together: pure decisions, no clock, no Redis, no model."""
