"""Converts a trace of FASTPATH_TRACE to OTF2, for Vampir and other tools of that format.

usage: python3 trace_otf2.py TRACE.json FOLDER

Needs OTF2's Python module: Debian's package python3-otf2, or otf2 of PyPI. FOLDER is created; FOLDER/traces.otf2 names
the trace. Each rank is a location group, each thread a location, each interval a region. A moment, such as a sent
message, is a region without duration. Peer, tag and bytes are attributes of regions. There are no events of sent and
received messages, because FASTPATH_TRACE keeps only the latest points, and may lack the other end of a message.
"""

import json
import os
import sys

COLLECTIVES = ("Allgather", "Allreduce", "Alltoall", "Bcast", "Exscan", "Gather", "Neighbor", "Reduce", "Scan", "Scatter")


def fail(text):
    print(f"trace_otf2.py: {text}", file=sys.stderr)
    sys.exit(1)


def read_trace(path):
    """Returns names of ranks and threads, and the events of each thread in order."""
    try:
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{path} is no trace of FASTPATH_TRACE: {error}")
    names, threads = {}, {}
    for event in events:
        place = event["pid"], event.get("tid")
        if event["ph"] == "M":
            if event["name"].endswith("_name"):
                names[place] = event["args"]["name"]
        else:
            threads.setdefault(place, []).append(event)
    return names, threads


def find_role(otf2, name):
    """Returns the role and the paradigm of a region."""
    roles, paradigms = otf2.RegionRole, otf2.Paradigm
    if not name.startswith("MPI_"):
        return roles.ARTIFICIAL, paradigms.MEASUREMENT_SYSTEM
    call = name.removeprefix("MPI_").removeprefix("I")
    if call.lower().startswith("barrier"):
        return roles.BARRIER, paradigms.MPI
    if any(call.lower().startswith(word.lower()) for word in COLLECTIVES):
        return roles.COLL_OTHER, paradigms.MPI
    if call.startswith("File_"):
        return roles.FILE_IO, paradigms.MPI
    return roles.POINT2POINT, paradigms.MPI


class Converter:
    """Writer of events. It writes the definition of a region or attribute at the first use."""

    def __init__(self, otf2, trace):
        self.otf2, self.definitions = otf2, trace.definitions
        self.regions, self.attributes = {}, {}

    def region(self, name):
        if name not in self.regions:
            role, paradigm = find_role(self.otf2, name)
            self.regions[name] = self.definitions.region(name, region_role=role, paradigm=paradigm)
        return self.regions[name]

    def attribute(self, name, value):
        if name not in self.attributes:
            kind = self.otf2.Type.STRING if isinstance(value, str) else self.otf2.Type.INT64
            self.attributes[name] = self.definitions.attribute(name, type=kind)
        return self.attributes[name]

    def write(self, writer, events):
        """Writes the events of a thread. An interval in which the rank died has no end, and ends with the last event."""
        open_regions, now = [], 0
        for event in events:
            now = max(now, round(event["ts"] * 1000))
            if event["ph"] == "E":
                writer.leave(now, open_regions.pop())
                continue
            region = self.region(event["name"])
            values = {self.attribute(name, value): value for name, value in event.get("args", {}).items()}
            writer.enter(now, region, attributes=values)
            if event["ph"] == "B":
                open_regions.append(region)
            else:
                writer.leave(now, region)
        while open_regions:
            writer.leave(now, open_regions.pop())


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stdout if sys.argv[1:] == ["--help"] else sys.stderr)
        sys.exit(0 if sys.argv[1:] == ["--help"] else 2)
    path, folder = sys.argv[1:]
    try:
        import otf2
    except ImportError as error:
        fail(f"OTF2's Python module is missing ({error}); install Debian's python3-otf2, or `pip install otf2`")
    names, threads = read_trace(path)
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        fail(f"{folder} exists; name a new folder")
    # Times of the file are microseconds with three digits.
    with otf2.writer.open(folder, timer_resolution=10**9) as trace:
        converter = Converter(otf2, trace)
        node = trace.definitions.system_tree_node("job")
        groups = {}
        for rank, thread in sorted(threads):
            if rank not in groups:
                name = names.get((rank, None), f"rank {rank}")
                groups[rank] = trace.definitions.location_group(name, system_tree_parent=node)
            name = names.get((rank, thread), f"thread {thread}")
            converter.write(trace.event_writer(name, group=groups[rank]), threads[rank, thread])


if __name__ == "__main__":
    main()
