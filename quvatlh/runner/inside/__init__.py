"""What runs inside an environment: by path, in whatever interpreter that has, without the rest of this package."""
