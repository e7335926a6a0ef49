"""The whole node but HTTP: the real core, services and log; clients, actions and what must hold of them."""
