"""The small process whose children the actions are; it outlives its daemon. See DESIGN.md of the runner."""
