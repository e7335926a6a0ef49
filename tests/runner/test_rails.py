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


async def performed(rails: Calls, job: str, *args: Any) -> Any:
    end = await rails.run(job, *args, adapter="warm", environment="shop")
    assert end.error is None, end
    return None if end.result is None else json.loads(end.result)


async def test_jobs_of_a_rails_application_run_in_a_process_that_stays(rails: Calls) -> None:
    first = await performed(rails, "ReportJob", 1, 2)
    assert (first["sum"], first["env"]) == (3, "production")
    assert await performed(rails, "ReportJob", 1, 2) == first
    count = await performed(rails, "OrderJob", "tea")
    assert await performed(rails, "OrderJob", "milk") == count + 1
    assert await performed(rails, "SideJob", "loud") == "LOUD"


async def test_in_development_what_was_changed_is_what_the_next_job_runs(calls: Calls, shop: Path) -> None:
    command = ("bin/rails", "runner", "quvatlh_warm.rb")
    env = tuple({**VARIABLES, "RAILS_ENV": "development"}.items())
    job = shop / "app" / "jobs" / "price_job.rb"
    job.parent.mkdir(exist_ok=True)
    job.write_text("class PriceJob < ActiveJob::Base\n  def perform = 1\nend\n")
    calls.pools.configure([Environment("shop", command=command, cwd=str(shop), env=env)])
    assert await performed(calls, "PriceJob") == 1
    job.write_text(job.read_text().replace("= 1", "= 22"))
    assert await performed(calls, "PriceJob") == 22


async def test_what_goes_wrong_in_rails_is_said(rails: Calls) -> None:
    busy = await rails.run("SideJob", "busy", adapter="warm", environment="shop")
    assert busy.error is not None
    assert (busy.error.text, busy.error.retry_after_s) == ("Quvatlh::Retry: busy", 3.0)
    unknown = await rails.run("NoJob", adapter="warm", environment="shop")
    assert code(unknown) == "unrunnable"
    assert text(unknown).startswith("there is no NoJob: uninitialized constant NoJob")
    assert await performed(rails, "SideJob", "on") == "ON"
