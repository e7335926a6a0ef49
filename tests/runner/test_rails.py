"""A real Rails application, made by the machine's own Rails: jobs of it in warm processes, cold and warm start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from quvatlh.config.environments import Environment
from tests.runner.calls import Calls, code, text

WARM = Path(__file__).parents[2] / "deploy" / "warm" / "quvatlh_warm.rb"
SKIPPED = [
    "action-mailer",
    "action-mailbox",
    "action-text",
    "active-storage",
    "action-cable",
    "sprockets",
    "javascript",
    "bootsnap",
    "spring",
    "listen",
    "test",
    "webpack-install",
    "turbolinks",
    "jbuilder",
    "puma",
    "bundle",
    "git",
]
GEMS = ("railties", "activejob", "activerecord", "actionpack", "sqlite3")
JOBS = """
class Order < ActiveRecord::Base
end

class ReportJob < ActiveJob::Base
  def perform(left, right)
    { "sum" => left + right, "env" => Rails.env, "pid" => Process.pid }
  end
end

class OrderJob < ActiveJob::Base
  def perform(name)
    puts "ordering #{name}"
    Order.create!(name: name)
    Order.count
  end
end

class SideJob
  def perform(word)
    raise Quvatlh::Retry.new("busy", after: 3) if word == "busy"

    word.upcase
  end
end

class Here < ActiveSupport::CurrentAttributes
  attribute :user
end

class HereJob < ActiveJob::Base
  def perform(user)
    before, Here.user = Here.user, user
    Rails.logger.info("here is #{user}")
    Order.count
    [before, Here.user]
  end
end

module Connections
  def self.busy = ActiveRecord::Base.connection_pool.stat[:busy]
end

class Gone < StandardError; end
class Odd < StandardError; end
class Loud < StandardError; end

class EndingJob < ActiveJob::Base
  rescue_from(Odd) { nil }
  retry_on RuntimeError, wait: 2.seconds, attempts: 3, jitter: 0
  retry_on(Loud, attempts: 1) { nil }
  discard_on Gone, ActiveJob::DeserializationError
  before_perform { throw :abort if arguments.first == "abort" }
  around_perform { |job, block| block.call unless job.arguments.first == "skip" }
  after_perform { raise IOError, "afterwards" if arguments.first == "after" }

  def perform(how)
    case how
    when "flaky" then raise "flaky #{executions}"
    when "again" then retry_job(wait: 7)
    when "at" then retry_job(wait_until: Time.now - 1)
    when "gone" then raise Gone, "it is gone"
    when "odd" then raise Odd
    when "loud" then raise Loud, "no more"
    when "later" then raise Quvatlh::Retry.new("not now", after: 9)
    when "false" then false
    when "id" then [job_id, provider_job_id]
    when "object"
      within = Struct.new(:all).new([])
      within.all << Object.new.tap { |it| it.instance_variable_set(:@within, within) }
      within
    when "waits"
      Order.count
      Quvatlh.current.progress(0, "begun")
      sleep
    when "bytes" then "\\xff"
    when Order then how.name
    end
  end
end

class CatchAllJob < ActiveJob::Base
  retry_on StandardError, wait: 2.seconds

  def perform(how)
    raise how == "later" ? Quvatlh::Retry.new("not now", after: 9) : Quvatlh::PermanentFailure.new("never")
  end
end

class NamedJob < ActiveJob::Base
  def perform(order, names:, at: nil)
    [order.name, names, at&.year]
  end
end
"""
PREPARE = "ActiveRecord::Base.connection.create_table(:orders) { |table| table.string :name }"
VARIABLES = {"RAILS_ENV": "production", "SECRET_KEY_BASE": "of-these-tests", "RAILS_LOG_TO_STDOUT": "1"}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("rails") is None, reason="rails is not installed (apt-get install ruby-railties)"),
    pytest.mark.xdist_group("rails"),
]


def run(directory: Path, *command: str) -> None:
    environ = {**os.environ, **VARIABLES}
    found = subprocess.run(
        command, cwd=directory, env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    if found.returncode:
        raise RuntimeError(f"no Rails application can be made here: {' '.join(command)}: {found.stderr.strip()[-300:]}")


def made(directory: Path) -> Path:
    """The directory of a new application, with its table."""
    run(directory, "rails", "new", "shop", "--quiet", *(f"--skip-{each}" for each in SKIPPED))
    shop = directory / "shop"
    (shop / "Gemfile").write_text("".join(f'gem "{each}"\n' for each in GEMS))
    (shop / "config" / "initializers" / "jobs.rb").write_text(JOBS)
    shutil.copy(WARM, shop)
    run(shop, "bin/rails", "runner", PREPARE)
    return shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return made(tmp_path_factory.mktemp("rails"))
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture
async def rails(calls: Calls, shop: Path) -> Calls:
    command = ("bin/rails", "runner", "quvatlh_warm.rb")
    calls.pools.configure([Environment("shop", command=command, cwd=str(shop), env=tuple(VARIABLES.items()))])
    return calls


async def performed(rails: Calls, job: str, *args: Any, **given: Any) -> Any:
    end = await rails.run(job, *args, adapter="warm", environment="shop", **given)
    assert end.error is None, end
    return None if end.result is None else json.loads(end.result)


async def test_jobs_of_a_rails_application_run_in_a_process_that_stays(rails: Calls) -> None:
    first = await performed(rails, "ReportJob", 1, 2)
    assert (first["sum"], first["env"]) == (3, "production")
    assert await performed(rails, "ReportJob", 1, 2) == first
    count = await performed(rails, "OrderJob", "tea")
    assert await performed(rails, "OrderJob", "milk") == count + 1
    assert await performed(rails, "SideJob", "loud") == "LOUD"


@pytest.mark.parametrize("loaded", ["quvatlh_warm.rb", "Rails.application.executor.wrap { load 'quvatlh_warm.rb' }"])
async def test_in_development_what_was_changed_is_what_the_next_job_runs(calls: Calls, shop: Path, loaded: str) -> None:
    """Also where `rails runner` holds the executor around it, as that of 7.1 does."""
    command = ("bin/rails", "runner", loaded)
    env = tuple({**VARIABLES, "RAILS_ENV": "development"}.items())
    job = shop / "app" / "jobs" / "price_job.rb"
    job.parent.mkdir(exist_ok=True)
    job.write_text("class PriceJob < ActiveJob::Base\n  def perform = 1\nend\n")
    calls.pools.configure([Environment("shop", command=command, cwd=str(shop), env=env)])
    assert await performed(calls, "PriceJob", timeout_s=30) == 1
    job.write_text(job.read_text().replace("= 1", "= 22"))
    assert await performed(calls, "PriceJob", timeout_s=30) == 22


async def test_what_goes_wrong_in_rails_is_said(rails: Calls) -> None:
    busy = await rails.run("SideJob", "busy", adapter="warm", environment="shop")
    assert busy.error is not None
    assert (busy.error.text, busy.error.retry_after_s) == ("Quvatlh::Retry: busy", 3.0)
    unknown = await rails.run("NoJob", adapter="warm", environment="shop")
    assert code(unknown) == "unrunnable"
    assert text(unknown).startswith("there is no NoJob: uninitialized constant NoJob")
    assert await performed(rails, "SideJob", "on") == "ON"


async def ended(rails: Calls, job: str, *args: Any, **given: Any) -> tuple[str, bool, float | None]:
    """How it failed: with which words, for good or not, and when it is to be tried again."""
    end = await rails.run(job, *args, adapter="warm", environment="shop", **given)
    assert end.error is not None, end
    return end.error.text, end.error.permanent, end.error.retry_after_s


async def test_a_job_that_retries_is_a_failed_attempt_of_its_task(rails: Calls) -> None:
    assert await ended(rails, "EndingJob", "flaky", attempt=1) == ("RuntimeError: flaky 1", False, 2.0)
    assert await ended(rails, "EndingJob", "flaky", attempt=2) == ("RuntimeError: flaky 2", False, 2.0)
    assert await ended(rails, "EndingJob", "flaky", attempt=3) == ("RuntimeError: flaky 3", True, None)
    assert await ended(rails, "EndingJob", "again") == ("Quvatlh::Retry: asked to be tried again", False, 7.0)
    assert await ended(rails, "EndingJob", "at") == ("Quvatlh::Retry: asked to be tried again", False, 0.0)
    assert await ended(rails, "EndingJob", "loud") == ("Loud: no more", True, None)


async def test_a_job_that_was_given_up_or_not_performed_has_failed_for_good(rails: Calls) -> None:
    assert await ended(rails, "EndingJob", "gone") == ("Quvatlh::Discarded: Gone: it is gone", True, None)
    halted = ("Quvatlh::Halted: a callback kept it from being performed", True, None)
    assert await ended(rails, "EndingJob", "abort") == halted
    assert await ended(rails, "EndingJob", "skip") == halted
    assert await performed(rails, "EndingJob", "false") is False
    assert await performed(rails, "EndingJob", "odd") is None
    assert await ended(rails, "EndingJob", "after") == ("IOError: afterwards", False, None)


async def test_what_a_job_says_to_the_scheduler_goes_before_what_rails_catches(rails: Calls) -> None:
    assert await ended(rails, "CatchAllJob", "later") == ("Quvatlh::Retry: not now", False, 9.0)
    assert await ended(rails, "CatchAllJob", "never") == ("Quvatlh::PermanentFailure: never", True, None)


@pytest.mark.parametrize("which", ["object", "bytes"])
async def test_what_a_job_returns_fails_it_never(rails: Calls, which: str) -> None:
    assert await performed(rails, "EndingJob", which) is None


async def test_arguments_may_be_serialized_as_active_job_does_it(rails: Calls) -> None:
    number = await performed(rails, "OrderJob", "first")
    order = {"_aj_globalid": f"gid://shop/Order/{number}"}
    assert await performed(rails, "EndingJob", order) == "first"
    at = {"_aj_serialized": "ActiveJob::Serializers::TimeSerializer", "value": "2031-02-03T04:05:06.000000000Z"}
    kwargs = {"names": {"a": 1}, "at": at}
    end = await rails.run("NamedJob", order, adapter="warm", environment="shop", kwargs=kwargs)
    assert (end.error, end.result) == (None, b'["first",{"a":1},2031]')
    unknown, permanent, _ = await ended(rails, "EndingJob", {"_aj_globalid": "gid://shop/Order/1000000"})
    assert unknown.startswith("Quvatlh::Discarded: ActiveJob::DeserializationError: ")
    assert permanent
    assert code(await rails.run("NamedJob", 1, adapter="warm", environment="shop")) == "unrunnable"


async def test_jobs_leave_each_other_nothing(rails: Calls) -> None:
    for user in ("ada", "bob"):
        end = await rails.run("HereJob", user, adapter="warm", environment="shop")
        assert end.result == f'[null,"{user}"]'.encode()
        assert f"here is {user}" in end.stderr_tail
        assert await performed(rails, "Connections.busy") == 0
    assert await performed(rails, "EndingJob", "id") == ["t5", "t5"]


async def test_a_job_that_is_told_to_stop_is_no_matter_for_what_rails_catches(rails: Calls) -> None:
    name = rails.start("EndingJob", "waits", adapter="warm", environment="shop", grace_s=30)
    await rails.told()
    rails.stop(name)
    assert code(await rails.end(name)) == "stopped"
    assert await performed(rails, "Connections.busy") == 0
