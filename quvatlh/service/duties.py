"""What a master does, put together: the market, pull workers, balance, time. Every node has all of it, and each part looks for
itself whether this node is the master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quvatlh.codec import Values
from quvatlh.service.auction import Auction
from quvatlh.service.balance import Balancer
from quvatlh.service.chores import Chores
from quvatlh.service.crew import Crew
from quvatlh.service.cron import Cron
from quvatlh.service.door import Door
from quvatlh.service.feed import Hearer
from quvatlh.service.jury import Jury
from quvatlh.service.offers import Book
from quvatlh.service.pace import Pace
from quvatlh.service.placer import Placer
from quvatlh.service.planning import Planner
from quvatlh.service.presence import Presence
from quvatlh.service.pulling import Pulling
from quvatlh.service.pullreports import PullReports
from quvatlh.service.pulls import Pulls
from quvatlh.service.readers import Reading
from quvatlh.service.reads import Reads
from quvatlh.service.reserve import Reserves
from quvatlh.service.seats import Seats
from quvatlh.service.shapes import Shapes
from quvatlh.service.state import State
from quvatlh.service.timekeeper import Timekeeper
from quvatlh.service.tree import Tree

if TYPE_CHECKING:
    from quvatlh.service.node import Options, World


class Duties:
    def __init__(
        self,
        options: Options,
        world: World,
        state: State,
        codec: Values,
        *,
        door: Door,
        presence: Presence,
        seats: Seats,
        crew: Crew,
        reads: Reads,
        readers: Reading,
        reserves: Reserves,
    ) -> None:
        log, peers, clock, entropy = world.log, world.peers, world.clock, world.entropy
        shapes, self.pace, self.jury = Shapes(state), Pace(clock), Jury(peers, log.node_id)
        self.jury.own = crew.judge
        self.book = Book(log, peers, state, presence, shapes, clock)
        seats.take_offers = self.book.take
        self.pulls = Pulls(log, door, state, presence, clock, entropy, codec)
        said = PullReports(log, door, state, readers, presence, self.pulls, clock, entropy)
        self.pulling = Pulling(log, peers, door, state, self.pulls, said)
        self.auction = Auction(
            log,
            door,
            state,
            presence,
            clock,
            self.book,
            self.pace,
            shapes,
            pulls=self.pulls,
            strategy=options.strategy,
            ahead=options.ahead,
        )
        door.at_once = self.auction.at_once.beside
        self.balancer = Balancer(
            log, door, state, reads, presence, self.jury, shapes, clock, codec, auto=options.balance
        )
        self.placer = Placer(door, state, options.disciplines, options.name, world.note)
        self.chores = Chores(log, door, state, clock, options.name)
        planner = Planner(log, state, clock, entropy)
        door.stamp, door.run_now = planner.stamp, planner.run_now
        self.timekeeper = Timekeeper(
            log, door, state, clock, options.name, clocks_ms=world.facts.clocks_ms, note=world.note
        )
        self.cron = Cron(log, door, state, planner, may_add=reserves.may_add, note=world.note)
        self.hearers: tuple[Hearer, ...] = (
            self.pace,
            self.book,
            said,
            self.pulls,
            self.pulling,
            self.auction,
            self.balancer,
            self.chores,
            self.cron,
            self.placer,
        )

    def start(self, tree: Tree) -> None:
        tree.duty("chores", self.chores.run)
        tree.duty("cron", self.cron.run)
        tree.duty("timekeeper", self.timekeeper.run)
        tree.duty("auction", self.auction.run)
        tree.duty("placer", self.placer.run)
        tree.grow("plug-ins", self.placer.announce)
        tree.duty("balance", self.balancer.run)
