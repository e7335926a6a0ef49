"""A pull worker in Python's standard library: QUVATLH_URL, QUVATLH_TOKEN, and the queues as arguments."""

import json
import multiprocessing
import os
import socket
import sys
import time
import urllib.error
import urllib.request

URL, LEASE = os.environ["QUVATLH_URL"].rstrip("/"), float(os.environ.get("LEASE", "30"))
HEADERS = {"Authorization": f"Bearer {os.environ['QUVATLH_TOKEN']}", "Content-Type": "application/json"}
CLAIM = {"worker": os.environ.get("WORKER", f"python-{socket.gethostname()}"), "queues": sys.argv[1:] or ["*"]}


def ask(verb, body):
    while True:  # what was said may be said again; but not what is wrong
        try:
            request = urllib.request.Request(f"{URL}/v1/work/{verb}", json.dumps(body).encode(), HEADERS)
            return json.load(urllib.request.urlopen(request, timeout=60))
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429:
                sys.exit(f"{error}: {error.read().decode()}")
            time.sleep(1)


def work(payload):  # yours: what it returns is the task's result
    return {"sum": sum(payload)}


def run(owned, payload):
    try:
        verb, said = "finish", {"result": work(payload)}
    except Exception as error:
        verb, said = "fail", {"error": repr(error)}
    ask(verb, owned | said)


while True:
    for action in ask("claim", CLAIM | {"lease": LEASE})["actions"]:
        owned = {"action": action["action"], "token": action["token"]}
        child = multiprocessing.get_context("fork").Process(target=run, args=(owned, action["payload"]))
        child.start()
        while child.join(LEASE / 3) or child.is_alive():
            if "code" in ask("renew", owned)["results"][0]:  # gone, or another's
                child.kill()
        if child.exitcode:
            ask("fail", owned | {"error": f"its process ended with {child.exitcode}"})
