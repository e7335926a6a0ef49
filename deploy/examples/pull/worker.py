"""A pull worker in Python's standard library: QUVATLH_URL, QUVATLH_TOKEN, and the queues as arguments."""

import json
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

URL, TOKEN = os.environ["QUVATLH_URL"].rstrip("/"), os.environ["QUVATLH_TOKEN"]
NAME = os.environ.get("WORKER", f"python-{socket.gethostname()}")


def ask(verb, body):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{URL}/v1/work/{verb}", json.dumps(body).encode(), headers)
    while True:
        try:
            return json.load(urllib.request.urlopen(request, timeout=60))
        except OSError as error:  # what was said may be said again; but not what is wrong
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429:
                sys.exit(f"{error}: {error.read().decode()}")
            time.sleep(1)


def renew(owned, done):
    while not done.wait(10):  # a third of the lease
        ask("renew", owned)


def work(payload):  # yours: what it returns is the task's result
    return {"sum": sum(payload)}


while True:
    claimed = ask("claim", {"worker": NAME, "queues": sys.argv[1:] or ["*"], "wait": "20s", "lease": "30s"})
    for action in claimed["actions"]:
        owned = {"action": action["action"], "token": action["token"]}
        threading.Thread(target=renew, args=(owned, done := threading.Event()), daemon=True).start()
        try:
            verb, said = "finish", {"result": work(action["payload"])}
        except Exception as error:
            verb, said = "fail", {"error": repr(error)}
        ask(verb, owned | said)
        done.set()
