"""The same two functions in several queues, for tests.bench.python: a module a queue, which says how its workers are started
and how tasks are sent to it. Each is imported only where it is installed.
"""
