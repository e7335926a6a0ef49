"""The log alone: clients write registers and sets, and their histories are judged."""
