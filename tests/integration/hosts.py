"""Hosts of a cluster on one machine: network namespaces with host names and addresses of their own, on one bridge, and a launch agent that
enters them as ssh would. Needs the right to make namespaces; without it Unavailable says why."""
import collections
import fcntl
import itertools
import multiprocessing
import os
import pathlib
import select
import shutil
import struct
import subprocess
import time

NETWORK = "10.81.77"
COUNT = itertools.count()
AGENT = """#!/bin/bash
# agent.sh HOST COMMAND...: runs a command on a host of tests/integration/hosts.py.
number=${1#tfm-host-}; shift
exec ip netns exec "%(prefix)s$number" unshare --uts bash -c 'hostname "$0"; exec bash -c "$*"' "tfm-host-$number" "$@"
"""


class Unavailable(Exception):
    """Why there are no namespaces here."""


def run(*command, check=True):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if check and done.returncode:
        raise Unavailable(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done


def card(name):
    """A network card whose frames this process reads and writes."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    tunsetiff, tap, no_packet_information = 0x400454CA, 0x0002, 0x1000
    fcntl.ioctl(file, tunsetiff, struct.pack("16sH22x", name.encode(), tap | no_packet_information))
    return file


def switch(cards, delay):
    """Hands frames on after `delay` seconds; what a card has no room for is lost, as on a switch."""
    at, waiting, poll = {}, collections.deque(), select.poll()  # at: of an address the card
    for file in cards:
        poll.register(file, select.POLLIN)
    while True:
        wait = max(0, waiting[0][0] - time.monotonic()) * 1e3 if waiting else None
        for file, _ in poll.poll(wait):
            for _ in range(64):
                try:
                    frame = os.read(file, 65536)
                except OSError:  # no more, or a link that is down
                    break
                at[frame[6:12]] = file
                waiting.append((time.monotonic() + delay, file, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, source, frame = waiting.popleft()
            for file in [at[frame[:6]]] if frame[:6] in at else [c for c in cards if c != source]:
                try:
                    os.write(file, frame)
                except OSError:
                    pass


class Hosts:
    """Hosts tfm-host-1 to tfm-host-N; a context that removes them at its end. Files: of the one machine, shared by all. `delay`: seconds that
    a frame is under way, by a switch of this file in place of the bridge."""

    def __init__(self, number, folder, slots=1, delay=0.0):
        self.names = [f"tfm-host-{i}" for i in range(1, number + 1)]
        self.slots, self.delay, self.cards, self.switch = slots, delay, [], None
        unique = f"{os.getpid() % 10**6}x{next(COUNT)}"  # what was removed may linger for a while
        self.prefix, self.bridge = f"tfm{unique}n", f"tfm{unique}"
        self.agent, self.hostfile, self.table = folder / "agent.sh", folder / "hosts", folder / "etc-hosts"
        self.agent.write_text(AGENT % {"prefix": self.prefix})
        self.agent.chmod(0o755)
        self.hostfile.write_text("".join(f"{name} slots={slots}\n" for name in self.names))

    def space(self, host):
        return f"{self.prefix}{self.names.index(host) + 1}"

    def __enter__(self):
        for tool in ("ip", "tc", "unshare"):
            if not shutil.which(tool):
                raise Unavailable(f"{tool} is not installed (Debian: iproute2, util-linux)")
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            run("ip", "addr", "add", f"{NETWORK}.254/24", "dev", self.bridge)
            run("ip", "link", "set", self.bridge, "up")
            for i, name in enumerate(self.names, 1):
                space, outer = self.space(name), f"{self.bridge}p{i}"
                run("ip", "netns", "add", space)
                if self.delay:
                    self.cards.append(card(outer))
                    run("ip", "link", "set", outer, "netns", space, "name", "eth0", "mtu", 9000)
                else:
                    run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
                    run("ip", "link", "set", outer, "master", self.bridge, "up")
                run("ip", "-n", space, "addr", "add", f"{NETWORK}.{i}/24", "dev", "eth0")
                run("ip", "-n", space, "link", "set", "eth0", "up")
                run("ip", "-n", space, "link", "set", "lo", "up")
        except (Unavailable, OSError) as reason:
            self.__exit__()
            raise Unavailable(reason) from reason
        if self.delay:
            self.switch = multiprocessing.Process(target=switch, args=(self.cards, self.delay), daemon=True)
            self.switch.start()
        self.resolve()
        return self

    def resolve(self):
        """`ip netns exec` mounts files of /etc/netns/NAME over those of /etc."""
        lines = "127.0.0.1 localhost\n" + "".join(f"{NETWORK}.{i} {name}\n" for i, name in enumerate(self.names, 1))
        for name in self.names:
            folder = pathlib.Path("/etc/netns") / self.space(name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text(lines)

    def __exit__(self, *_):
        if self.switch:
            self.switch.kill()
        for file in self.cards:
            os.close(file)
        for name in self.names:
            for process in run("ip", "netns", "pids", self.space(name), check=False).stdout.split():
                run("kill", "-KILL", process, check=False)
            run("ip", "netns", "del", self.space(name), check=False)
            shutil.rmtree(pathlib.Path("/etc/netns") / self.space(name), ignore_errors=True)
        run("ip", "link", "del", self.bridge, check=False)

    def inside(self, name):
        return ["ip", "netns", "exec", self.space(name)]

    def on_first(self, *command):
        """The command, on the first host."""
        named = f'hostname {self.names[0]}; exec "$@"'
        return [*self.inside(self.names[0]), "unshare", "--uts", "bash", "-c", named, "bash", *map(str, command)]

    def launcher(self):
        """Variables with which mpirun reaches the hosts."""
        return {f"OMPI_MCA_{name}": value for name, value in (
            ("plm", "rsh"), ("plm_rsh_agent", str(self.agent)), ("btl", "self,vader,tcp"), ("pml", "ob1"), ("btl_tcp_if_include", "eth0"),
            ("oob_tcp_if_include", "eth0"), ("hwloc_base_binding_policy", "none"), ("mca_base_env_list", "OMP_NUM_THREADS"))} | {
                "HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": str(self.agent), "HYDRA_IFACE": "eth0"}

    def mpirun(self, ranks, *command):
        """The command that starts a job, equally many ranks on each host (the last has what is left), mpirun being on the first."""
        variables = [f"{name}={value}" for name, value in self.launcher().items()]
        return self.on_first("env", *variables, "mpirun", "--allow-run-as-root", "--hostfile", self.hostfile,
                             "--map-by", f"ppr:{-(-ranks // len(self.names))}:node", "-np", ranks, *command)

    def shape(self, *discipline):
        """The queue of each host's card: "tbf", "rate", "100mbit", ... False: this kernel has no such queue."""
        for name in self.names:
            queue = [*self.inside(name), "tc", "qdisc"]
            run(*queue, "del", "dev", "eth0", "root", check=False)
            if discipline and run(*queue, "add", "dev", "eth0", "root", *discipline, check=False).returncode:
                return False
        return True

    def cut(self, name, up=False):
        """Takes a host's link down."""
        run("ip", "-n", self.space(name), "link", "set", "eth0", "up" if up else "down")

    def sent_bytes(self, name):
        text = run(*self.inside(name), "cat", "/sys/class/net/eth0/statistics/tx_bytes").stdout
        return int(text)
