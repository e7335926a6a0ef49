"""A world that is simulated: time, disks, network and processes, all of them owned by one seed.

`loop` is time and processes, `clock`, `disk` and `net` keep the ports, `trace` remembers, `world` puts them together.
Nothing here knows Raft; what is proved in this world stands beside it.
"""
