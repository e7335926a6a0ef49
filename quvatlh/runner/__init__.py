"""How actions are carried out on this machine: native commands as processes. See DESIGN.md beside this file."""
