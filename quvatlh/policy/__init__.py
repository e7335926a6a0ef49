"""Policies: Lua of strangers, in a process of its own. `judge.LuaJudge` keeps the port; see DESIGN.md.

Nothing is imported here: the process of the policies loads this package too, and should load nothing else.
"""
