#!/usr/bin/python3
"""Example of a provider program for a cloud without an own one: see docs/burst-provider.md.

Replace the class Cloud with calls of your cloud, then run: gctl burst check PROGRAM. This one keeps
"instances" as files in the folder FAKE_CLOUD. It needs only Python 3.9.

The cloud must refuse a second instance of a name: names are made from the client token, so that a
repeated launch starts nothing, even if the answer to the first one was lost.
"""
import datetime
import decimal
import hashlib
import json
import os
import sys


class Failure(Exception):
    """A failure with a kind of the contract: exit status 1. Other exceptions end with status 75."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Cloud:
    """A cloud in a folder."""

    def __init__(self):
        self.dir = os.environ["FAKE_CLOUD"]
        os.makedirs(self.dir, exist_ok=True)

    def offers(self):
        """The prices. They are a table here; ask your cloud for those of spot instances."""
        machine = {"type": "gpu8", "region": "r1", "cpus": 96, "memory_bytes": 1 << 40, "gpus": 8,
                   "gpu_type": "h100", "gpu_memory_bytes": 80 << 30, "boot_seconds": 120}
        return [
            {"name": "gpu8/r1", "market": "spot", "price": "24.50", "interruption_ppm": 50000, **machine},
            {"name": "gpu8/r1", "market": "on-demand", "price": "80.00", **machine},
        ]

    def create(self, name, record):
        """Creates an instance with tags and user data in one request. Returns False if it exists."""
        part = os.path.join(self.dir, ".%s.%d" % (name, os.getpid()))
        with open(part, "w", encoding="utf-8") as f:
            json.dump(record, f)
            f.flush()
            os.fsync(f.fileno())
        try:
            os.link(part, os.path.join(self.dir, name))
            return True
        except FileExistsError:
            return False
        finally:
            os.unlink(part)

    def read(self, name):
        """One instance, or None."""
        try:
            with open(os.path.join(self.dir, name), encoding="utf-8") as f:
                return json.load(f)
        except FileNotFoundError:
            return None

    def list(self, cluster):
        """The instances with the tag of the cluster."""
        names = [n for n in os.listdir(self.dir) if not n.startswith(".")]
        return [x for x in map(self.read, sorted(names)) if x and x["cluster"] == cluster]

    def delete(self, name):
        """Ends an instance: nothing of it may cost anything. Repeated calls are no error."""
        record = self.read(name)
        record["state"] = "terminated"
        part = os.path.join(self.dir, ".%s.%d" % (name, os.getpid()))
        with open(part, "w", encoding="utf-8") as f:
            json.dump(record, f)
        os.rename(part, os.path.join(self.dir, name))


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def validate(cloud, question):
    return {"problems": [] if os.access(cloud.dir, os.W_OK) else ["cannot write to " + cloud.dir]}


def offers(cloud, question):
    return {"currency": "USD", "offers": [{"priced_at": now(), **o} for o in cloud.offers()]}


def launch(cloud, question):
    want = question["launch"]
    same = {k: want[k] for k in ("nodes", "offer", "type", "region", "market", "max_price", "lifetime_seconds")}
    arguments = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
    stem = "i" + hashlib.sha256((question["cluster"] + want["client_token"]).encode()).hexdigest()[:16]
    first = cloud.read(stem + "-0")
    if first:
        if first["arguments"] != arguments:
            raise Failure("mismatched", "the client token was used with other arguments")
    else:
        check_offer(cloud, want)
    record = {"cluster": question["cluster"], "launch": want["launch"], "try": want["try"], "state": "running",
              "type": want["type"], "launched_at": now(), "price": price_of(cloud, want),
              "arguments": arguments, "lifetime_seconds": want["lifetime_seconds"], "user_data": want["user_data"]}
    names = ["%s-%d" % (stem, i) for i in range(want["nodes"])]
    for name in names:
        # If your cloud has no capacity for one of them here: delete those before it, and raise
        # Failure("capacity", ...).
        cloud.create(name, {"id": name, **record})
    return {"instances": [shown(cloud.read(name)) for name in names]}


def check_offer(cloud, want):
    price = price_of(cloud, want)
    if not price:
        raise Failure("not_found", "no offer %s" % want["offer"])
    if decimal.Decimal(price) > decimal.Decimal(want["max_price"]):
        raise Failure("price", "the price is %s, above %s" % (price, want["max_price"]))


def price_of(cloud, want):
    for o in cloud.offers():
        if all(o[k] == want[w] for k, w in (("name", "offer"), ("type", "type"), ("region", "region"), ("market", "market"))):
            return o["price"]
    return None


def shown(record):
    fields = ("id", "cluster", "launch", "try", "state", "type", "launched_at", "price")
    return {k: record[k] for k in fields if record.get(k) is not None}


def list_instances(cloud, question):
    return {"instances": [shown(x) for x in cloud.list(question["cluster"])]}


def terminate(cloud, question):
    own = {x["id"] for x in cloud.list(question["cluster"])}  # never an instance of another cluster
    ended = sorted(own.intersection(question["instances"]))
    for name in ended:
        cloud.delete(name)
    return {"instances": [shown(cloud.read(name)) for name in ended]}


def console(cloud, question):
    return {"console": "the fake cloud has no console\n"}


CALLS = {"validate": validate, "offers": offers, "launch": launch, "list": list_instances,
         "terminate": terminate, "console": console}


def main():
    try:
        try:
            call, question = CALLS[sys.argv[-1]], json.load(sys.stdin)
        except (KeyError, ValueError) as e:
            raise Failure("invalid", "want a call, and one JSON object as input: %r" % e) from e
        answer, status = call(Cloud(), question), 0
    except Failure as e:
        answer, status = {"error": {"kind": e.kind, "message": str(e)}}, 1
    except Exception as e:  # the outcome may be unknown: the call is repeated
        print(repr(e), file=sys.stderr)
        answer, status = {"error": {"kind": "try_later", "message": repr(e)}}, 75
    json.dump(answer, sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
